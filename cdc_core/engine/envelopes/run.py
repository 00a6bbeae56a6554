"""Writes Debezium's records to a file or to Kafka: the snapshot of the mode, then the stream; without Spark and lake.

The slot is confirmed only up to a mark that the output has made durable (``Output``), with every record before it.
After a kill the next run continues without losing a record; what is repeated is said by the output.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import numpy as np
import pyarrow as pa

from cdc_core.decode.pgoutput.stream_state import SortedSegment
from cdc_core.engine.envelopes.acknowledged import Acknowledged, OnBatch
from cdc_core.engine.envelopes.output import Output, Position
from cdc_core.engine.envelopes.segments import Segments, SlotSegments
from cdc_core.engine.envelopes.table_rows import ROOM_SECONDS, OnProgress, TableRows
from cdc_core.engine.reading.delivered import DeliveredFilter
from cdc_core.engine.reading.idle import IdleEnd
from cdc_core.engine.reading.tables import TableRegistry
from cdc_core.engine.reports import StreamReport, Until
from cdc_core.envelope.context import EnvelopeContext
from cdc_core.envelope.stream_events import StreamEvents
from cdc_core.lsn import Lsn
from cdc_core.offsets.delivered import Delivered
from cdc_core.postgres.connect import connect
from cdc_core.postgres.replication.stream import ReplicationStream
from cdc_core.postgres.source import Source
from cdc_core.schema.table import TableSchema
from cdc_core.selection.messages import MessageSelection
from cdc_core.selection.options import SelectionOptions
from cdc_core.snapshot.notifications import BLOCKING, INITIAL, Notifier, SnapshotStatus
from cdc_core.snapshot.options import SnapshotOptions
from cdc_core.snapshot.signals.envelopes import EnvelopeSignals

_log = logging.getLogger(__name__)

_MANY_ROWS = 200
_SEGMENT_SECONDS = 0.2
_CHUNK_SECONDS = 0.005
# How long is waited at the end for what the output has not written.
_SETTLE_SECONDS = 30.0


class EnvelopeRun:
    """One run of ``wal2lake envelopes``."""

    def __init__(
        self,
        source: Source,
        context: EnvelopeContext,
        rows: TableRows,
        selection: SelectionOptions,
        snapshot: SnapshotOptions,
        notifier: Notifier,
    ) -> None:
        self._source = source
        self._context = context
        self._rows = rows
        self._selection = selection
        self._snapshot = snapshot
        self._notifier = notifier
        self._position = Position()
        self._signals: EnvelopeSignals | None = None
        self._acknowledged: Acknowledged | None = None
        self._is_calm = True

    def use_signals(self, signals: EnvelopeSignals) -> None:
        """Process signals while streaming."""
        self._signals = signals

    def tell(self, on_progress: OnProgress | None, on_batch: OnBatch | None) -> None:
        """Report the rows of snapshots, table by table, and what of the stream is durable."""
        self._rows.on_progress = on_progress
        self._acknowledged = None if on_batch is None else Acknowledged(on_batch)

    def resume(self, output: Output) -> Position:
        """Open the output at the position that the last run stored, and return that position.

        The rows of an interrupted snapshot are removed.
        """
        self._position = output.open()
        return self._position

    def snapshot(self, tables: list[TableSchema], output: Output) -> int:
        """Write a read event for every row; returns their number. Creates the slot if it does not exist."""
        makes_slot = not self._source.slot().exists
        # Durable before the slot is made: otherwise the next run would find a slot, and take no snapshot.
        output.mark(replace(self._position, in_snapshot=True, makes_slot=makes_slot))
        output.settle()
        time.sleep(self._snapshot.snapshot_delay_ms / 1000)
        names = ",".join(str(table.id) for table in tables)
        self._notifier.notify(INITIAL, SnapshotStatus.STARTED, data_collections=names)
        try:
            written = self._rows.write(tables, self._source.open_snapshot(), output, {}, lambda: None)
        except BaseException:
            self._notifier.notify(INITIAL, SnapshotStatus.ABORTED, data_collections=names)
            raise
        self._position = replace(self._position, in_snapshot=False, makes_slot=False)
        output.mark(self._position)
        output.settle()
        self._notifier.notify(INITIAL, SnapshotStatus.COMPLETED, data_collections=names, total_rows_scanned=written)
        time.sleep(self._snapshot.streaming_delay_ms / 1000)
        return written

    def _blocking(self, segments: Segments, output: Output) -> int:
        """Take the blocking snapshots that signals requested, while streaming is paused; returns the number of rows."""
        assert self._signals is not None
        progress = self._signals.progress
        conditions = {one.table: one.condition for one in progress.blocking}
        output.mark(replace(self._position, progress=progress.to_json()))
        output.settle()
        found = {table.id: table for table in self._source.catalog.tables(conditions.__contains__)}
        tables = [found[name] for name in conditions if name in found]
        names = ",".join(str(table.id) for table in tables)
        self._notifier.notify(BLOCKING, SnapshotStatus.STARTED, data_collections=names)
        written = self._rows.write(tables, self._source.open_concurrent_snapshot(), output, conditions, segments.tick)
        self._signals.blocking_done()
        self._position = replace(self._position, progress=self._signals.progress.to_json())
        output.mark(self._position)
        self._notifier.notify(BLOCKING, SnapshotStatus.COMPLETED, data_collections=names, total_rows_scanned=written)
        return written

    def stream(
        self,
        tables: list[TableSchema],
        output: Output,
        until: Until,
        should_stop: Callable[[], bool],
        resumed_at: Lsn | None = None,
    ) -> StreamReport:
        """Write the stream's records until a bound is reached; they are durable then.

        ``resumed_at``: the LSN that the slot had confirmed, None for a new slot. source.sequence continues from there.
        Raises the errors of the server and of decoding, and those required by
        ``event.converting.failure.handling.mode``.
        """
        began_at = max(resumed_at or Lsn(0), self._position.lsn) if resumed_at is not None else Lsn(0)
        catalog = self._source.describing()
        registry = TableRegistry(catalog, self._source.includes(), tables)
        translator = self._source.translator(catalog, tables)
        with closing(translator), ReplicationStream(self._source.options, start_lsn=began_at or None) as stream:
            segments = SlotSegments(stream, began_at, registry.describe, translator)
            report = self.follow(segments, output, until, should_stop)
            self._settle(output, segments)
            return report

    def follow(self, segments: Segments, output: Output, until: Until, should_stop: Callable[[], bool]) -> StreamReport:
        """As ``stream``, with the segments of any reader; what was written last may not be durable yet."""
        events = StreamEvents(
            self._context,
            self._rows.change_events,
            wants_message=MessageSelection(self._selection).includes,
            heartbeat_ms=self._source.options.heartbeat_interval_ms,
        )
        delivered = self._delivered(events)
        started = last_data = action_due = time.monotonic()
        xmin = _Xmin(self._source)
        written, count, idle = 0, 0, IdleEnd(self._source.sendable_lsn)
        reason: str | None = None
        while reason is None:
            self._confirm(output, segments)
            if not output.has_room:
                segments.tick()
                time.sleep(ROOM_SECONDS)
                reason = "request" if should_stop() else None
                continue
            found = segments.next(self._segment_seconds())
            if found is not None:
                found = found if delivered is None else delivered.rest(found)
                records = events.records(found, xmin.now())
                if self._signals is not None:
                    records = self._signals.interleave(found, records)
                if records.num_rows or segments.is_open:
                    last_data = time.monotonic()
                written += self._write(output, records, found, segments.is_open)
                if self._acknowledged is not None:
                    self._acknowledged.write(found)
                count += 1
            else:
                written += self._beat(output, events.idle(), not segments.is_open)
            if self._signals is not None and not segments.is_open:
                self._is_calm = found is None or found.frames < _MANY_ROWS
                written += self._between(self._signals, segments, output, found is None)
                last_data = time.monotonic() if self._signals.snapshots.is_busy else last_data
            segments.confirm_idle(not segments.is_open and output.is_settled)
            action_due = self._act(action_due)
            reason = "request" if should_stop() else None
            reason = reason or self._is_over(until, started, last_data, idle, segments)
        return StreamReport(count, written, self._position.lsn, (), time.monotonic() - started, reason)

    def _delivered(self, events: StreamEvents) -> DeliveredFilter | None:
        """What leaves out the changes that another connector has sent after the position."""
        if not self._position.delivered:
            return None
        delivered = Delivered.from_json(self._position.delivered)
        part = delivered.part
        if part is not None and part.counts is not None:
            events.go_on(part.commit_lsn, dict(part.counts))
        return DeliveredFilter(delivered)

    def _beat(self, output: Output, records: pa.Table, is_complete: bool) -> int:
        """Write a heartbeat that is due while nothing is received; ``is_complete``: no transaction is open."""
        written = output.write(records)
        if written and is_complete:
            output.mark(self._position)
        else:
            output.flush()
        return written

    def _confirm(self, output: Output, segments: Segments) -> None:
        """Let the slot be confirmed up to what is durable, and report that."""
        durable = output.durable_lsn
        segments.confirm(durable)
        if self._acknowledged is not None:
            self._acknowledged.reach(durable, segments.wal_end)

    def _settle(self, output: Output, segments: Segments) -> None:
        """Wait until what was marked is durable, and confirm it; what is not by then is written again."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while not (is_settled := output.settle(ROOM_SECONDS)) and time.monotonic() < deadline:
            segments.tick()
        if not is_settled:
            _log.warning("Not everything was written by the end of the run; the next run writes the rest.")
        self._confirm(output, segments)

    def _segment_seconds(self) -> float:
        """Seconds to collect a segment; less during an incremental snapshot, so that each chunk is emitted soon."""
        is_busy = self._signals is not None and self._signals.snapshots.is_busy
        return _CHUNK_SECONDS if is_busy and self._is_calm else _SEGMENT_SECONDS

    def _between(self, signals: EnvelopeSignals, segments: Segments, output: Output, is_silent: bool) -> int:
        """Process signals between two segments, while no transaction is open; returns the number of records written."""
        # Records written since the last mark would be written again after a kill, so then no mark is set before the
        # next Commit.
        is_marked = output.is_marked
        if output.is_settled and signals.progress.to_json() == self._position.progress:
            signals.done()
        written = output.write(signals.idle(segments.wal_end)) if is_silent else 0
        signals.between(str(self._position.lsn), is_silent)
        if signals.progress.blocking:
            written += self._blocking(segments, output)
        progress = signals.progress.to_json()
        if is_marked and progress != self._position.progress:
            self._position = replace(self._position, progress=progress)
            output.mark(self._position)
        return written

    def _write(self, output: Output, records: pa.Table, found: SortedSegment, is_open: bool) -> int:
        """Write a segment's records, and mark the output after the last Commit among them.

        Messages outside of transactions may be all that follows: then it is marked after them, too.
        """
        written = self._write_commits(output, records, found)
        if not is_open and found.messages and not output.is_marked:
            behind = Lsn(found.messages[-1].lsn + 1)
            self._position = replace(self._position, lsn=max(self._position.lsn, behind))
            output.mark(self._position)
        return written

    def _write_commits(self, output: Output, records: pa.Table, found: SortedSegment) -> int:
        if found.last_commit_end_lsn is None:
            return output.write(records)
        kinds, seq = (found.transactions.column(name).to_numpy() for name in ("kind", "seq"))
        whole = int(np.searchsorted(records.column("seq").to_numpy(), seq[kinds == ord("C")][-1], side="right"))
        output.write(records.slice(0, whole))
        progress = self._position.progress if self._signals is None else self._signals.at_commit.to_json()
        left = self._position.delivered
        if left and (found.last_commit_lsn or 0) >= Delivered.from_json(left).last_lsn:
            left = ""
        self._position = Position(Lsn(found.last_commit_end_lsn), progress=progress, delivered=left)
        output.mark(self._position)
        output.write(records.slice(whole))
        output.flush()
        return int(records.num_rows)

    def _act(self, due: float) -> float:
        """Run heartbeat.action.query if it is due; returns when it is due next (monotonic seconds)."""
        options = self._source.options
        if not options.heartbeat_interval_ms or not options.heartbeat_action_query or time.monotonic() < due:
            return due
        with connect(options) as connection:
            # The user's own statement, which reads nothing for a destination.
            connection.execute("SET row_security = on")
            connection.execute(options.heartbeat_action_query.encode())
        return time.monotonic() + options.heartbeat_interval_ms / 1000

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
