"""A connector's events: the snapshot of its mode, then the stream, into any output."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from cdc_core.engine import (
    RENEWAL,
    Hooks,
    Seen,
    StreamReport,
    Until,
    WaitingChanges,
    needing_sender,
    note_sender,
    with_new_senders,
)
from cdc_core.errors import TransientError
from cdc_core.events.envelope.context import EnvelopeContext
from cdc_core.events.stream.acknowledged import OnBatch
from cdc_core.events.stream.event_settings import EventSettings
from cdc_core.events.stream.marked_output import MarkedOutput
from cdc_core.events.stream.output import Output, Position
from cdc_core.events.stream.requested import requested_snapshots
from cdc_core.events.stream.run import EnvelopeRun
from cdc_core.events.stream.segments import SharedSegments
from cdc_core.events.stream.table_rows import TableRows
from cdc_core.lsn import Lsn
from cdc_core.postgres import ChunkConnection, Source
from cdc_core.schema import TableSchema
from cdc_core.selection import MessageSelection
from cdc_core.snapshot import Channel, ModeActions, Notifier, OnProgress, SenderRenewal, in_reading_order, mode_actions

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class EventStart:
    """What precedes a run of events. ``is_apart``: the snapshot is an operation of its own, so that a slot may be new
    although it exists.

    ``is_lost``: the slot has lost WAL, and the mode reads all rows then. ``renewal``: when the stream is begun anew,
    None if the server needs that never; ``has_all``: whether another destination has the rows of all tables.
    """

    tables: list[TableSchema]
    is_lost: bool = False
    is_apart: bool = False
    renewal: SenderRenewal | None = None
    has_all: Callable[[], bool] = lambda: False


class EventStream:
    """One run of a connector's events into an output that is not opened yet. ``source`` is claimed, and has published.

    ``beside_lake``: a run into the lake has the slot, and this one gets its segments (``follow``).
    """

    def __init__(
        self,
        source: Source,
        records: EnvelopeContext,
        output: Output,
        notifier: Notifier,
        settings: EventSettings,
        start: EventStart,
        *,
        beside_lake: bool = False,
    ) -> None:
        self._source = source
        self._settings = settings
        self._start = start
        self._marked = MarkedOutput(output)
        self._notifier = notifier
        self._mode = mode_actions(settings.snapshot)
        selection, snapshot = settings.selection, settings.snapshot
        self._rows = TableRows(source.options, records, settings.types, selection, snapshot)
        self._run = EnvelopeRun(source, records, self._rows, selection, snapshot, notifier, self._marked)
        self._left = self._marked.open()
        if beside_lake:
            return
        if self._left.makes_slot and self._left.in_snapshot and self._mode.interrupted:
            # The rows that it wrote are removed, or repeated; the new slot exports a snapshot with which they are read.
            source.drop_slot()
        self._found = source.check_slot()

    def tell(self, on_progress: OnProgress | None = None, on_batch: OnBatch | None = None) -> None:
        """Report the rows of snapshots, and what of the stream is durable."""
        self._rows.on_progress = on_progress
        self._marked.report(on_batch, MessageSelection(self._settings.selection).includes)

    @property
    def seen(self) -> Seen:
        """What of the stream was received; may be asked by any thread."""
        return self._run.seen

    @property
    def waiting(self) -> WaitingChanges | None:
        """What is written and not durable; may be asked by any thread."""
        return self._marked.output.waiting

    @property
    def tables(self) -> list[TableSchema]:
        """The captured tables."""
        return self._start.tables

    def snapshot(self) -> int:
        """Write the rows that the snapshot mode requires, if any; returns their number. Makes the slot."""
        reads = _reads(self._mode, self._left, self._found.exists, self._start.is_lost)
        if self._left.is_stored and not self._left.makes_slot and (self._start.is_lost or not self._found.exists):
            _log.warning(
                "Replication slot %s %s: the changes made since the last run are missing in the records. %s",
                self._source.options.slot_name,
                "has lost WAL that it needs" if self._start.is_lost else "no longer exists",
                "Every row is read again; rows that were deleted meanwhile have no event."
                if reads
                else "No row is read again: snapshot.mode=when_needed reads them.",
            )
        if reads:
            chosen = [table for table in self._start.tables if self._source.selection.includes_in_snapshot(table.id)]
            written = self._run.snapshot(in_reading_order(self._source.catalog, chosen, self._settings.snapshot))
            custom = self._settings.snapshot.custom
            if custom is not None:
                custom.completed()
            return written
        if not self._found.exists:
            self._source.make_slot()
        return 0

    def stream(self, until: Until, should_stop: Callable[[], bool] | None, channels: Sequence[Channel]) -> StreamReport:
        """Write the stream's records until a bound is reached. ``channels`` supply signals."""
        is_new = self._start.is_apart and not self._left.lsn
        is_over = should_stop or (lambda: False)
        resumed = [None if is_new else self._found.confirmed_lsn]

        def once(until: Until, hooks: Hooks) -> StreamReport:
            report = self._streamed(until, is_over, resumed[-1])
            resumed.append(self._source.slot().confirmed_lsn)
            return report

        with self._signals(channels):
            return with_new_senders(once, until, Hooks())

    def _streamed(self, until: Until, is_over: Callable[[], bool], resumed: Lsn | None) -> StreamReport:
        """Stream once; the report says RENEWAL if another walsender is needed."""
        note_sender(self._start.renewal, self._source, self._reached(), self._start.has_all)
        needs = needing_sender(self._start.renewal, self._source)
        renews, looked_at = False, float("-inf")

        def ends() -> bool:
            nonlocal renews, looked_at
            if time.monotonic() - looked_at >= _LOOK_SECONDS:
                renews, looked_at = needs(self._reached()), time.monotonic()
            return renews or is_over()

        is_faulty = self._start.renewal is not None
        report = self._run.stream(self._start.tables, until, ends if is_faulty else is_over, resumed)
        return replace(report, stopped_by=RENEWAL) if renews and report.stopped_by == "request" else report

    def _reached(self) -> int:
        """Where a stream would begin now: at what is durable here, and confirmed."""
        return max(self._marked.position.lsn, self._source.slot().confirmed_lsn or 0)

    def follow(self, segments: SharedSegments, should_stop: Callable[[], bool], inbox: Channel) -> None:
        """Write segments of a run into the lake until it stops; ``inbox`` supplies all signals but the source's."""
        if self._left.in_snapshot:
            raise TransientError(
                "The snapshot into Kafka was interrupted, and the rest of its rows must be read first.",
                "Run again: each run takes it at its start.",
            )
        segments.start_after(self._left.lsn)
        with self._signals([inbox]):
            self._run.follow(segments, Until(), should_stop)

    @contextmanager
    def _signals(self, channels: Sequence[Channel]) -> Iterator[None]:
        """Process signals while streaming."""
        with closing(ChunkConnection(self._source.options, self._settings.snapshot.snapshot_lock_timeout_ms)) as chunks:
            self._run.use_signals(
                requested_snapshots(
                    self._source, self._rows, chunks, self._notifier, self._left.progress, channels, self._settings
                )
            )
            yield


def _reads(mode: ModeActions, left: Position, slot_exists: bool, is_lost: bool) -> bool:
    """Whether this start reads rows. ``left`` is the position at the end of the last run."""
    if left.in_snapshot:
        return mode.interrupted
    if is_lost or (not slot_exists and left.lsn and mode.position_lost):
        return True
    return mode.later if slot_exists else mode.first
