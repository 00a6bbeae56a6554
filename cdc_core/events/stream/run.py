"""Writes Debezium's records into an output: the snapshot of the mode, then the stream; without Spark and lake.

``marked_output`` decides which position is stored with the output, and when the slot is confirmed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from cdc_core.engine import DeliveredFilter, IdleEnd, Seen, StreamReport, TableRegistry, Until
from cdc_core.events.envelope.context import EnvelopeContext
from cdc_core.events.envelope.stream_events import StreamRecords
from cdc_core.events.stream.marked_output import MarkedOutput
from cdc_core.events.stream.output import ROOM_SECONDS
from cdc_core.events.stream.segments import Segments, SlotSegments
from cdc_core.events.stream.signals import EnvelopeSignals
from cdc_core.events.stream.table_rows import TableRows
from cdc_core.lsn import Lsn
from cdc_core.offsets import Delivered
from cdc_core.postgres import HeartbeatAction, ReplicationStream, Source
from cdc_core.schema import TableSchema
from cdc_core.selection import MessageSelection, SelectionOptions
from cdc_core.snapshot import Notifier, SnapshotOptions, SnapshotStatus

_MANY_ROWS = 200
_SEGMENT_SECONDS = 0.2
_CHUNK_SECONDS = 0.005


class EnvelopeRun:
    """Takes snapshots and follows the stream, into ``marked``, which is opened before a method is called.

    ``seen``: what of the stream was received.
    """

    def __init__(
        self,
        source: Source,
        context: EnvelopeContext,
        rows: TableRows,
        selection: SelectionOptions,
        snapshot: SnapshotOptions,
        notifier: Notifier,
        marked: MarkedOutput,
    ) -> None:
        self._source = source
        self._context = context
        self._rows = rows
        self._selection = selection
        self._snapshot = snapshot
        self._notifier = notifier
        self._marked = marked
        self._signals: EnvelopeSignals | None = None
        self._is_calm = True
        self.seen = Seen(MessageSelection(selection).includes)

    def use_signals(self, signals: EnvelopeSignals) -> None:
        """Process signals while streaming."""
        self._signals = signals

    def snapshot(self, tables: list[TableSchema]) -> int:
        """Write a read event for every row; returns their number. Creates the slot if it does not exist."""
        marked = self._marked
        makes_slot = not self._source.slot().exists
        # Durable before the slot is made: otherwise the next run would find a slot, and take no snapshot.
        marked.mark_durably(replace(marked.position, in_snapshot=True, makes_slot=makes_slot))
        time.sleep(self._snapshot.snapshot_delay_ms / 1000)
        names = ",".join(str(table.id) for table in tables)
        self._notifier.initial(SnapshotStatus.STARTED, data_collections=names)
        try:
            written = self._rows.write(tables, self._source.open_snapshot(), marked.output, {}, lambda: None)
        except BaseException:
            self._notifier.initial(SnapshotStatus.ABORTED, data_collections=names)
            raise
        marked.mark_durably(replace(marked.position, in_snapshot=False, makes_slot=False))
        self._notifier.initial(SnapshotStatus.COMPLETED, data_collections=names, total_rows_scanned=written)
        time.sleep(self._snapshot.streaming_delay_ms / 1000)
        return written

    def _blocking(self, signals: EnvelopeSignals, segments: Segments) -> int:
        """Take the blocking snapshots that signals requested, while streaming is paused; returns the number of rows."""
        marked, progress = self._marked, signals.progress
        conditions = {snapshot.table: snapshot.condition for snapshot in progress.blocking}
        marked.mark_durably(replace(marked.position, progress=progress.to_json()))
        described = {table.id: table for table in self._source.catalog.tables(conditions.__contains__)}
        tables = [described[name] for name in conditions if name in described]
        names = ",".join(str(table.id) for table in tables)
        self._notifier.blocking(SnapshotStatus.STARTED, data_collections=names)
        opened = self._source.open_concurrent_snapshot()
        written = self._rows.write(tables, opened, marked.output, conditions, segments.tick)
        signals.blocking_done()
        marked.mark(replace(marked.position, progress=signals.progress.to_json()))
        self._notifier.blocking(SnapshotStatus.COMPLETED, data_collections=names, total_rows_scanned=written)
        return written

    def stream(
        self,
        tables: list[TableSchema],
        until: Until,
        should_stop: Callable[[], bool],
        resumed_at: Lsn | None = None,
    ) -> StreamReport:
        """Write the stream's records until a bound is reached; they are durable then.

        ``resumed_at``: the LSN that the slot had confirmed, None for a new slot. source.sequence continues from there.
        Raises the errors of the server and of decoding, and those required by
        ``event.converting.failure.handling.mode``.
        """
        began_at = max(resumed_at or Lsn(0), self._marked.position.lsn) if resumed_at is not None else Lsn(0)
        catalog = self._source.describing()
        registry = TableRegistry(catalog, self._source.includes(), tables)
        translator = self._source.translator(catalog, tables)
        with closing(translator), ReplicationStream(self._source.options, start_lsn=began_at or None) as stream:
            segments = SlotSegments(stream, began_at, registry.describe, translator)
            report = self.follow(segments, until, should_stop, HeartbeatAction(self._source.options).run_if_due)
            self._marked.settle(segments)
            return report

    def follow(
        self,
        segments: Segments,
        until: Until,
        should_stop: Callable[[], bool],
        heartbeat: Callable[[], None] = lambda: None,
    ) -> StreamReport:
        """As ``stream``, with the segments of any reader; the last records may not be durable yet.

        ``heartbeat`` runs heartbeat.action.query, where no other reader of the slot does.
        """
        events = StreamRecords(
            self._context,
            self._rows.change_events,
            wants_message=MessageSelection(self._selection).includes,
            heartbeat_ms=self._source.options.heartbeat_interval_ms,
        )
        marked, output, signals = self._marked, self._marked.output, self._signals
        delivered = self._delivered(events)
        started = last_data = time.monotonic()
        xmin = _Xmin(self._source)
        written, count, idle = 0, 0, IdleEnd(self._source.sendable_lsn)
        reason: str | None = None
        while reason is None:
            marked.confirm(segments)
            if not output.has_room:
                segments.tick()
                time.sleep(ROOM_SECONDS)
                reason = "request" if should_stop() else None
                continue
            segment = segments.next(self._segment_seconds())
            if segment is not None:
                self.seen.note(segment)
                segment = segment if delivered is None else delivered.rest(segment)
                records = events.records(segment, xmin.now())
                if signals is not None:
                    records = signals.interleave(segment, records)
                if records.num_rows or segments.is_open:
                    last_data = time.monotonic()
                at_commit = None if signals is None else signals.at_commit
                written += marked.write(records, segment, segments.is_open, at_commit)
                count += 1
            else:
                written += marked.write_idle(events.idle(), not segments.is_open)
            if signals is not None and not segments.is_open:
                self._is_calm = segment is None or segment.frames < _MANY_ROWS
                written += self._between(signals, segments, segment is None)
                last_data = time.monotonic() if signals.snapshots.is_busy else last_data
            segments.confirm_idle(not segments.is_open and output.is_settled)
            heartbeat()
            reason = "request" if should_stop() else None
            reason = reason or self._is_over(until, started, last_data, idle, segments)
        return StreamReport(count, written, marked.position.lsn, (), time.monotonic() - started, reason)

    def _delivered(self, events: StreamRecords) -> DeliveredFilter | None:
        """What leaves out the changes that another connector has sent after the position."""
        stored = self._marked.position.delivered
        if not stored:
            return None
        delivered = Delivered.from_json(stored)
        part = delivered.part
        if part is not None and part.counts is not None:
            events.go_on(part.commit_lsn, dict(part.counts))
        return DeliveredFilter(delivered)

    def _segment_seconds(self) -> float:
        """Seconds to collect a segment; less during an incremental snapshot, so that each chunk is emitted soon."""
        is_busy = self._signals is not None and self._signals.snapshots.is_busy
        return _CHUNK_SECONDS if is_busy and self._is_calm else _SEGMENT_SECONDS

    def _between(self, signals: EnvelopeSignals, segments: Segments, is_silent: bool) -> int:
        """Process signals between two segments, while no transaction is open; returns the number of records written."""
        marked, output = self._marked, self._marked.output
        # Records written since the last mark would be written again after a kill, so then no mark is set before the
        # next Commit.
        is_marked = output.is_marked
        if output.is_settled and signals.progress.to_json() == marked.position.progress:
            signals.done()
        written = output.write(signals.idle(segments.wal_end)) if is_silent else 0
        signals.between(str(marked.position.lsn), is_silent)
        if signals.progress.blocking:
            written += self._blocking(signals, segments)
        progress = signals.progress.to_json()
        if is_marked and progress != marked.position.progress:
            marked.mark(replace(marked.position, progress=progress))
        return written

    def _is_over(
        self,
        until: Until,
        started: float,
        last_data: float,
        idle: IdleEnd,
        segments: Segments,
    ) -> str | None:
        """Return the bound that is reached, None if none is."""
        now = time.monotonic()
        if until.max_seconds is not None and now - started >= until.max_seconds:
            return "time"
        if segments.is_open:
            return None
        passed = segments.passed
        if until.lsn is not None and passed >= until.lsn:
            return "lsn"
        return "idle" if idle.is_reached(until.idle_seconds, now - last_data, passed) else None


class _Xmin:
    """The slot's catalog_xmin, queried again after xmin.fetch.interval.ms; None if that is 0."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._every = source.options.xmin_fetch_interval_ms / 1000
        self._due = 0.0
        self._value: int | None = None

    def now(self) -> int | None:
        if self._every and time.monotonic() >= self._due:
            self._value = self._source.slot().catalog_xmin
            self._due = time.monotonic() + self._every
        return self._value
