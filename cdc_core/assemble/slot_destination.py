"""A destination that reads the slot itself, in batches: what it is asked before, and what its sink is opened with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from cdc_core.engine import (
    DeliveredFilter,
    Meter,
    OpenedSink,
    OwnRows,
    Proved,
    RecordedStream,
    RunFolder,
    TableRegistry,
    UnrecordedStream,
)
from cdc_core.postgres import Source
from cdc_core.schema import PgType, TableSchema
from cdc_core.snapshot import Inbox, Notifier, OnNotification
from cdc_core.spark import StartSession


@dataclass(frozen=True, slots=True)
class SlotStart:
    """Where a stream begins. ``types`` are those that changes may have although the source has dropped them.

    ``own_rows`` makes the rows of the stream's own tables, ``delivered`` leaves out what another connector has sent.
    """

    recorded: RecordedStream | UnrecordedStream = field(default_factory=UnrecordedStream)
    own_rows: OwnRows | None = None
    delivered: DeliveredFilter | None = None
    types: Sequence[PgType] = ()


@dataclass(frozen=True, slots=True)
class SinkParts:
    """What a sink is opened with. ``inbox`` supplies signals of this process.

    ``forward`` gets the signals of all channels but the source's.
    """

    source: Source
    registry: TableRegistry
    spark: StartSession
    tables: list[TableSchema]
    folder: RunFolder
    notifier: Notifier
    inbox: Inbox | None = None
    forward: Inbox | None = None
    should_stop: Callable[[], bool] | None = None


class SlotDestination(Protocol):
    """A destination that reads the slot itself, in batches."""

    def require_slot_made(self, tables: Sequence[TableSchema]) -> None:
        """Raise what a slot that does not exist means for the destination, if it means more than that."""

    def begin(self, source: Source, tables: Sequence[TableSchema], proved: Proved | None) -> SlotStart:
        """Prove that the slot continues what the destination has; ``proved``: this was proved by the snapshot."""

    def notifier(self, listener: OnNotification | None) -> AbstractContextManager[Notifier]:
        """Open the notifier of the run."""

    def open_sink(self, parts: SinkParts) -> OpenedSink:
        """Open the sink; the caller closes it."""

    def show_rows(self, meter: Meter, tables: Sequence[TableSchema]) -> None:
        """Show in the metrics what the destination has at the start."""
