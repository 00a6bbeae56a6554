"""A destination of changes: what the operations of a connector ask of each, whichever it is.

    wal2lake.sinks ─▶ _SINKS ─▶ destinations; the first reads the slot, the others write beside it

Another destination is a class in ``assemble/destinations`` and a line in ``_SINKS``. Its module is loaded only by the
runs that write to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import ClassVar

from cdc_core.engine import Handover, Hooks, Sink, Status, StreamReport, Tap, Until
from cdc_core.errors import ConfigError, TableError
from cdc_core.lsn import Lsn
from cdc_core.offsets import SlotOffer, StreamEnd, Takeover
from cdc_core.postgres import Finding, Source
from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot import Inbox, OnNotification, OnProgress, SnapshotReport
from cdc_core.spark import GivenSession

# In the order in which they read the slot, or write beside it.
_SINKS = {"lake": "LakeDestination", "noop": "NoDestination", "kafka": "KafkaDestination"}


@dataclass(frozen=True, slots=True)
class SnapshotCall:
    """What ``Connector.initial_snapshot`` was called with."""

    spark: GivenSession = None
    on_progress: OnProgress | None = None
    on_notification: OnNotification | None = None
    handover: Handover | None = None
    only: Sequence[TableId] | None = None


@dataclass(frozen=True, slots=True)
class StreamCall:
    """What ``Connector.stream`` was called with, but its limits and hooks."""

    spark: GivenSession = None
    inbox: Inbox | None = None
    on_notification: OnNotification | None = None
    handover: Handover | None = None


class Beside:
    """What a destination does beside the one that reads the slot; this one does nothing.

    ``tap`` gets the segments that are read, ``inbox`` the signals that the other destination's channels receive.
    """

    tap: Tap | None = None
    inbox: Inbox | None = None

    def running(self) -> AbstractContextManager[None]:
        """Write until the end of the context."""
        return nullcontext()

    def joined(self, sink: Sink, send: Callable[[int], None]) -> tuple[Sink, Callable[[int], None]]:
        """Return the sink by which the run notices what happens here, and what confirms for both; once a stream."""
        return sink, send

    def drain(self) -> None:
        """Wait, for a bounded time, until all of it is durable, and confirm it."""


class Destination(ABC):
    """One destination of a connector, made for each use; holds nothing open.

    Each method answers for a destination that has no tables and keeps no position; subclasses say what differs.
    Methods raise CdcError, with a message and a remedy.
    """

    always_published: ClassVar[str] = ""
    """Operations (c, u, d, t) that it needs although Debezium skips them by default."""
    has_tables: ClassVar[bool] = False
    """Whether rows of tables are kept that operations can read and write."""
    writes_events: ClassVar[bool] = False
    begins_with_slot: ClassVar[bool] = False
    """Whether its first rows are read with the snapshot that the slot's creation exports, before others make it."""
    requires_keys: ClassVar[bool] = False
    """Whether an incremental snapshot reads only tables whose rows changes find by a key."""

    @property
    def claim(self) -> str:
        """What no other run may write meanwhile, whatever its slot is; empty for nothing."""
        return ""

    @property
    def signal_files(self) -> Sequence[Path]:
        """The files whose signals a run takes that writes to it; the first one is for ``wal2lake signal``."""
        return ()

    @property
    def folder(self) -> Path | None:
        """The folder of its tables on this machine. Raises ConfigError if they are elsewhere."""
        return None

    def known(self, tables: Sequence[TableSchema]) -> set[TableId]:
        """Return the tables whose rows it has."""
        return set()

    def has_all(self, tables: Sequence[TableSchema]) -> bool:
        """Return whether it has the rows of all tables, so that a run notices what the stream lacks."""
        return False

    def place(self) -> Finding | None:
        """Return whether it can be written to, for the start of a run; None if that shows at the first write."""
        return None

    def misfits(self, source: Source, tables: Iterable[TableSchema]) -> Iterator[TableError]:
        """Yield why tables cannot be written to it, one error a table."""
        yield from ()

    def place_findings(self) -> list[Finding]:
        """Return whether it can be written to, for ``check``."""
        return []

    def table_findings(self, *, is_ready: bool) -> list[Finding]:
        """Return what ``check`` says of the captured tables. ``is_ready``: nothing was found that keeps runs away."""
        return []

    def add_status(
        self, connector_status: Status, tables: Sequence[TableSchema] | None, rows: Mapping[TableId, int] | None
    ) -> Status:
        """Return the status with that of this destination.

        ``tables`` are the captured ones, None if the server could not be queried; ``rows`` are their numbers of rows in
        the source, None if rows are not counted.
        """
        return connector_status

    def end(self, source: Source, tables: Sequence[TableSchema], confirmed: Lsn) -> StreamEnd:
        """Return where the stream ends that was written. Raises SourceError if that is inside a transaction."""
        raise ConfigError(
            "wal2lake.sinks has neither lake nor kafka: nothing was written that Debezium could continue."
        )

    def takeover(self, source: Source, tables: Sequence[TableSchema], offer: SlotOffer) -> Takeover:
        """Return how it goes on from another connector's offset."""
        raise ConfigError("wal2lake.sinks has neither lake nor kafka: nothing would go on from the offset.")

    @abstractmethod
    def initial_snapshot(self, call: SnapshotCall) -> list[SnapshotReport]:
        """Read what ``snapshot.mode`` requires; see ``Connector.initial_snapshot``."""

    @abstractmethod
    def stream(self, until: Until, hooks: Hooks, call: StreamCall) -> StreamReport:
        """Read the slot and write its changes here; see ``Connector.stream``."""

    def beside(self, source: Source, tables: Sequence[TableSchema]) -> Beside:
        """Return what it does beside the destination that reads the slot."""
        return Beside()


def destinations_of(sinks: Sequence[str], context: object) -> tuple[Destination, ...]:
    """Return the destinations of ``wal2lake.sinks``; the first one reads the slot. ``context``: the run's."""
    return tuple(_maker(name)(context) for name in _SINKS if name in sinks)


def _maker(name: str) -> Callable[[object], Destination]:
    made: Callable[[object], Destination] = getattr(
        import_module(f"cdc_core.assemble.destinations.{name}"), _SINKS[name]
    )
    return made
