"""Snapshots requested by signals while streaming into the lake, and rows that other processes have staged for it.

Incremental snapshots are read in ranges concurrently with the stream, blocking snapshots while streaming is paused.

    signal ─▶ stored queue ─▶ ranges, read in Spark tasks ─▶ staged ─┐
    a job of another process ─▶ ranges, read in its tasks ─▶ staged ─┴▶ lake table merged past its LSN ─▶ written

Everything here runs between two rounds, in their thread; ranges are read meanwhile (``range_requests``), and written
one part at a time (``staged_writes``).

Crash safety. The stored state is the queue, the ranges of its first table that are in the lake, and the position of the
last signal. It is stored before the slot is confirmed past a signal (otherwise the slot sends it again), so that no
signal is lost, and none is processed twice because its position is compared. A range is staged in one commit, and
removed in one after it was written. The request for a blocking snapshot is stored until the snapshot is in the lake; it
may be taken twice, and replaces its tables either way.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from cdc_core import failpoints
from cdc_core.engine.backfill import blocking, staged_writes
from cdc_core.engine.backfill.blocking import BlockingSnapshots
from cdc_core.engine.backfill.range_requests import Pace, RangeRequests
from cdc_core.engine.backfill.staged_writes import StagedWrites, Wrote
from cdc_core.engine.backfill.stored import StoredProgress
from cdc_core.errors import CdcError
from cdc_core.lake import StagedRows
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId
from cdc_core.snapshot import RangeReads, SignalProcessor, SignalRow, SnapshotQueue, SnapshotStatus

_log = logging.getLogger(__name__)


class SnapshotTarget(staged_writes.StagedTarget, blocking.BlockingTarget, Protocol):
    """The operations of the lake that snapshots use (``cdc_core.engine.round.backfill_target.BackfillTarget``)."""


class LakeSnapshots:
    """The snapshots of one run. ``keeps_events``: the rows of chunks are also appended to the changelog.

    ``stored`` begins with what the last run stored; ``moved_keys`` as in ``RangeRequests``.
    """

    def __init__(
        self,
        queue: SnapshotQueue,
        processor: SignalProcessor,
        reads: RangeReads,
        staged: StagedRows,
        stored: StoredProgress,
        blocking: BlockingSnapshots,
        *,
        keeps_events: bool,
        moved_keys: int,
    ) -> None:
        self._queue = queue
        self._processor = processor
        self._reads = reads
        self._stored = stored
        self._blocking = blocking
        self._pace = Pace()
        self._writes = StagedWrites(stored, staged, reads, queue.describe, keeps_events=keeps_events)
        self._requests = RangeRequests(queue, stored, reads, self._writes, self._pace, moved_keys)

    @property
    def needed(self) -> dict[TableId, int]:
        """The LSN after which changes of tables are still read, 0 for all of them.

        The changes that a chunk does not show are left out of it when it is written, and changes are searched for rows
        that moved.
        """
        self._writes.look()
        state = self._stored.now
        floors = [(staged.table, staged.floor) for staged in self._writes.ranges]
        floors += [(table, search.since) for table, search in state.searches.items()]
        if state.progress.current is not None:
            floors.append((state.progress.current.table, state.request.since))
        return {table: min(lsn for name, lsn in floors if name == table) for table, _ in floors}

    @property
    def is_busy(self) -> bool:
        """Whether rows are to be read or written, unless the table is paused, being re-read, or cannot be read yet."""
        return self._requests.is_busy or self._writes.is_busy or bool(self._stored.now.progress.blocking)

    @property
    def _is_idle(self) -> bool:
        """Whether no row is requested, staged, or to be read again."""
        state = self._stored.now
        return not (state.progress.queue or state.searches or self._writes.has_any)

    def note(self, signals: Sequence[SignalRow]) -> None:
        """Process the signals of a batch before its position is confirmed."""
        last = self._stored.now.signal
        for row in signals:
            place = (row.commit_lsn, row.tx_index)
            if place > last:
                self._processor.take(row, str(Lsn(row.commit_lsn)))
                last = place
        if last != self._stored.now.signal:
            self._follow(last)
            failpoints.hit(failpoints.AFTER_SIGNAL)

    def between_rounds(self, lake: SnapshotTarget, passed: int) -> bool:
        """Run pending steps between two rounds, of which at most one writes rows to a lake table.

        ``passed`` is the LSN up to which everything received is processed. Returns whether rows were written: then more
        may be written at once.
        """
        if self._processor.ask(str(Lsn(passed))):
            self._follow()
        self._processor.done()
        if self._queue.progress.blocking and self._pace.may_try:
            self._read_at_once(lake)
        self._writes.look()
        if self._is_idle:
            return False
        wrote = self._writes.write(lake, passed)
        if wrote is not None:
            self._note_written(wrote)
        self._requests.go_on()
        return wrote is not None

    def close(self) -> None:
        """Stop reading and store the progress."""
        self._requests.close()
        self._reads.close()
        try:
            self._stored.store()
        except CdcError as error:
            _log.warning("The progress of the incremental snapshot could not be stored: %s", error)

    def _follow(self, signal: tuple[int, int] | None = None) -> None:
        """Do what signals ask for, which the processor has noted in the queue."""
        stops, self._queue.stops = self._queue.stops, []
        self._requests.changed(signal)
        if stops:
            self._writes.look(now=True)
        for is_stopped in stops:
            self._writes.drop_tables(is_stopped, "a signal has stopped it")

    def _note_written(self, wrote: Wrote) -> None:
        state, (request, number), table = self._stored.now, wrote.range.name, wrote.range.table
        current = state.progress.current
        is_own = request == state.request.id or (not number and current is not None and current.table == table)
        if is_own and wrote.rows:
            self._queue.delivered(state.progress, table, wrote.rows)
        elif wrote.rows:
            self._queue.notify(SnapshotStatus.IN_PROGRESS, current_collection_in_progress=table)

    def _read_at_once(self, lake: SnapshotTarget) -> None:
        """Read the tables of blocking snapshots while the caller does not read the stream."""
        tables = [collection.table for collection in self._queue.progress.blocking]
        taken = self._blocking.take(tables, lake)
        if taken is None:
            return
        left = tuple(collection for collection in self._queue.progress.blocking if collection.table not in taken)
        self._queue.progress = replace(self._queue.progress, blocking=left)
        self._requests.changed()
        if left:
            self._pace.wait()
        else:
            self._blocking.end(tables, taken)
