"""Snapshots requested by signals while streaming into the lake.

Incremental snapshots are read in chunks concurrently with the stream, blocking snapshots while streaming is paused.

    signal ─▶ stored queue ─▶ group of chunks (a thread) ─▶ lake table merged past the chunks' LSN ─▶ chunks are written

While one group waits and is written, the next is read. Everything here runs between two rounds, in their thread.

Crash safety. The stored state is the queue, the key up to which all rows have been written, and the position of the
last signal. It is stored before the slot is confirmed past a signal (otherwise the slot sends it again), so that no
signal is lost, and none is processed twice because its position is compared. It is also stored before a group is
written, with the group's last key. After a kill the next run reads the range between the two keys again, with the same
ordinal: writing rows again that are in the lake already does not change them, and rows that are in the changelog
already (``wal2lake.changelog.reads``) are not appended twice. The request for a blocking snapshot is stored until the
snapshot is in the lake; it may be taken twice, and replaces its tables either way.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Protocol

from cdc_core import failpoints
from cdc_core.engine.backfill.task import LandOrder, LandOutcome
from cdc_core.engine.slice.order import Merge
from cdc_core.errors import CdcError, OlderTransactionsError, RereadNeededError, TransientError
from cdc_core.lake.stores.progress_log import ProgressLog
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.snapshot.incremental.groups import ChunkGroup, GroupReader
from cdc_core.snapshot.incremental.lake_progress import LakeProgress
from cdc_core.snapshot.incremental.progress import Key
from cdc_core.snapshot.incremental.queue import SnapshotQueue
from cdc_core.snapshot.notifications import BLOCKING, Notifier, ScanStatus, SnapshotStatus
from cdc_core.snapshot.reports import SnapshotReport
from cdc_core.snapshot.signals.processor import SignalProcessor
from cdc_core.snapshot.signals.rows import SignalRow

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
_TRIES = 60
_BUSY_SECONDS = 2.0
# While the stream delivers many changes, writing chunks takes at most 1/_SHARE of the time, but is delayed at most
# _MAX_WAIT_SECONDS.
_SHARE, _MAX_WAIT_SECONDS = 15, 20.0
_REST, _PASSES = 20_000, 5

TakeBlockingSnapshot = Callable[[Mapping[TableId, int]], Mapping[TableId, SnapshotReport | CdcError]]


class Lake(Protocol):
    """The operations of the lake that snapshots use (``cdc_core.engine.round.backfill_target.BackfillTarget``)."""

    def is_current(self, table: TableSchema) -> bool:
        """Whether the lake table has the shape of this description of its source and is merged by rounds."""

    def order_to_land(self, table: TableId, reached: int, passed: int) -> Merge | None:
        """Return the order once the lake table is merged up to ``reached``; None before that."""

    def land(self, order: LandOrder) -> LandOutcome:
        """Write rows to the lake table."""

    def reserve(self, tables: Sequence[TableId]) -> dict[TableId, int] | None:
        """Reserve numbers for the shapes that the tables get when they are read; None while one is being read."""

    def note_read(self, table: TableId) -> None:
        """Reload the state of a table that was read."""


class LakeSnapshots:
    """The snapshots of one run. ``take`` reads tables into the lake and returns each one's report, or its error.

    Tables missing in its result are retried.

    ``keeps_reads``: the rows of chunks are also appended to the changelog. ``should_stop``: the run is about to end, so
    no further blocking snapshot is started; the next run takes it.
    """

    def __init__(
        self,
        queue: SnapshotQueue,
        processor: SignalProcessor,
        reader: GroupReader,
        log: ProgressLog,
        state: LakeProgress,
        take: TakeBlockingSnapshot,
        notifier: Notifier,
        *,
        keeps_reads: bool,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._should_stop = should_stop
        self._queue = queue
        self._processor = processor
        self._reader = reader
        self._log = log
        self._state = state
        self._stored = state
        self._take = take
        self._notifier = notifier
        self._keeps_reads = keeps_reads
        self._reading: Future[ChunkGroup] | None = None
        self._waiting: ChunkGroup | None = None
        self._retry_at = self._turn_at = self._busy_until = float("-inf")
        self._tries = 0
        self._is_held_up = False
        self._scanned_before = state.scanned

    @property
    def needed(self) -> dict[TableId, int]:
        """The LSN after which changes of the current table are still read, 0 for all of them.

        The changes that a chunk does not show are left out of it when it is written, and changes are searched for rows
        that moved. While one group is written the next is read, so that is since the group before the last one.
        """
        current = self._queue.progress.current
        return {} if current is None else {current.table: min(self._scanned_before, self._state.scanned)}

    @property
    def is_busy(self) -> bool:
        """Whether rows are to be read or written, unless the table is paused, being re-read, or cannot be read yet."""
        return (self._queue.is_busy and not self._is_held_up) or bool(self._queue.progress.blocking)

    def note(self, signals: Sequence[SignalRow], rows: int) -> None:
        """Process the signals of a batch before its position is confirmed; ``rows`` is its number of other rows."""
        if rows:
            self._busy_until = time.monotonic() + _BUSY_SECONDS
        done = False
        for row in signals:
            place = (row.commit_lsn, row.tx_index)
            if place > self._state.signal:
                self._processor.take(row, str(Lsn(row.commit_lsn)))
                self._state = replace(self._state, signal=place)
                done = True
        if done:
            self._follow()
            failpoints.hit(failpoints.AFTER_SIGNAL)

    def between_rounds(self, lake: Lake, passed: int) -> None:
        """Do what is due between two rounds; ``passed`` is the LSN up to which everything received is processed."""
        if self._processor.ask(str(Lsn(passed))):
            self._follow()
        self._processor.done()
        if self._queue.progress.blocking and time.monotonic() >= self._retry_at and not self._should_stop():
            self._read_at_once(lake)
        self._collect()
        if self._waiting is not None:
            self._land(lake, self._waiting, passed)
        self._read_on()

    def close(self) -> None:
        """Stop reading and store the progress."""
        self._reader.close()
        self._drop()
        try:
            self._store()
        except CdcError as error:
            _log.warning("The progress of the incremental snapshot could not be stored: %s", error)

    def _follow(self) -> None:
        """Follow a queue changed by signals: rows read for a table that is no longer the current one are discarded."""
        self._adopt()
        self._store()

    def _adopt(self) -> None:
        before, now = self._state.progress, self._queue.progress
        if before.current != now.current or (before.maximum_key is not None and now.maximum_key is None):
            self._drop()
            self._state = self._state.for_next_table(now)
        else:
            self._state = replace(self._state, progress=now)

    def _store(self) -> None:
        if self._state != self._stored:
            self._log.write(self._state.to_json())
            self._stored = self._state

    def _drop(self) -> None:
        if self._reading is not None:
            self._reader.enough()
            self._reading.add_done_callback(_discard)
            self._reading = None
        if self._waiting is not None:
            self._waiting.discard()
            self._waiting = None

    def _collect(self) -> None:
        """Take over the group that has been read."""
        if self._reading is None or not self._reading.done() or self._waiting is not None:
            return
        reading, self._reading = self._reading, None
        try:
            group = reading.result()
        except OlderTransactionsError as error:
            if not self._is_held_up:
                _log.warning("An incremental snapshot waits: %s", error)
            self._hold_up()
            return
        except TransientError as error:
            _log.warning("Rows of an incremental snapshot will be re-read: %s", error)
            self._retry()
            return
        except CdcError as error:
            current = self._queue.progress.current
            _log.warning("%s is skipped by the incremental snapshot: %s", current and current.table, error)
            self._end_table(ScanStatus.SQL_EXCEPTION)
            return
        except Exception:
            # An internal error while one table is read affects only that table.
            _log.exception("Reading rows of an incremental snapshot failed unexpectedly; its table is skipped.")
            self._end_table(ScanStatus.SQL_EXCEPTION)
            return
        if group.is_altered:
            self._retry()
        elif group.ended not in (None, ScanStatus.SUCCEEDED):
            self._refuse(group)
        else:
            self._waiting = group

    def _refuse(self, group: ChunkGroup) -> None:
        """Skip a table that is empty or cannot be read in chunks."""
        assert group.ended is not None
        if group.ended is not ScanStatus.EMPTY:
            _log.warning("%s is skipped by the incremental snapshot: %s.", group.collection.table, group.ended.value)
        self._end_table(group.ended)

    def _hold_up(self) -> None:
        """Read later, however often: a bounded run may end before."""
        self._is_held_up = True
        self._drop()
        self._retry_at = time.monotonic() + _RETRY_SECONDS

    def _retry(self) -> None:
        self._drop()
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        self._tries += 1
        if self._tries >= _TRIES:
            current = self._queue.progress.current
            _log.error(
                "%s is skipped by the incremental snapshot: %d attempts to write its rows to the lake failed. "
                "See the log for the cause, and request the snapshot again.",
                current and current.table,
                _TRIES,
            )
            self._end_table(ScanStatus.SKIPPED)

    def _read_on(self) -> None:
        """Start reading the next group while one waits; end the current read if no group waits."""
        is_slow = time.monotonic() < self._busy_until
        self._reader.slow(is_slow)
        if self._reading is not None:
            if self._waiting is None and time.monotonic() >= self._turn_at:
                self._reader.enough()
            return
        if not self._queue.is_busy or time.monotonic() < self._retry_at:
            return
        state = self._state
        if self._waiting is not None:
            if self._waiting.ended is not None or self._waiting.rest:
                return  # the next range depends on the result of writing this group
            state = replace(state, progress=self._waiting.progress, upto=None)
        self._reading = self._reader.start(state)

    def _land(self, lake: Lake, group: ChunkGroup, passed: int) -> None:
        is_busy = time.monotonic() < self._busy_until
        if is_busy and time.monotonic() < self._turn_at:
            return
        assert group.table is not None
        if not lake.is_current(group.table):
            # It is paused or being re-read, or the stream has not reached its last schema change.
            if not self._is_held_up:
                _log.info("Rows of %s wait until the lake table has the current columns of the source.", group.table.id)
            self._hold_up()
            return
        self._is_held_up = False
        order = lake.order_to_land(group.table.id, group.reached, passed)
        if order is None:
            return
        began = time.monotonic()
        scanned = self._state.scanned if group.scanned is None else group.scanned
        self._set(group, self._state.progress.last_key if self._state.progress.key == group.progress.key else None)
        # A group that was started and did not finish keeps its ordinal: its rows may be in the changelog already.
        is_redone = self._state.upto is not None and self._state.upto == group.progress.last_key
        ordinal = self._state.ordinal + (not is_redone)
        self._state = replace(self._state, scanned=scanned, upto=group.progress.last_key, ordinal=ordinal)
        self._store()
        failpoints.hit(failpoints.BEFORE_LANDING)
        reads = ordinal if self._keeps_reads else None
        outcome = lake.land(LandOrder(order, group.chunks, scanned, group.reached, reads))
        ended = time.monotonic()
        self._turn_at = ended + min((_SHARE - 1) * (ended - began), _MAX_WAIT_SECONDS)
        if outcome.error is not None:
            self._note_failure(group.table.id, outcome.error)
            return
        failpoints.hit(failpoints.AFTER_LANDING)
        self._note_landed(group, outcome, int(order.to_lsn or 0))

    def _set(self, group: ChunkGroup, last_key: Key | None) -> None:
        """Set the current table's keys to those of the group; all rows up to ``last_key`` have been written."""
        mine = group.progress
        progress = replace(self._queue.progress, key=mine.key, maximum_key=mine.maximum_key, last_key=last_key)
        self._queue.progress = progress
        self._state = replace(self._state, progress=progress)

    def _note_landed(self, group: ChunkGroup, outcome: LandOutcome, reached: int) -> None:
        self._tries = 0
        self._waiting = None
        group.discard()
        self._set(group, group.progress.last_key)
        if group.rows:
            self._queue.landed(self._queue.progress, outcome.table, group.rows)
        state = self._state
        self._scanned_before = state.scanned
        rest = dict.fromkeys([*state.rest[group.rest :], *(outcome.rest or ())])
        again = state.again or outcome.rest is None or len(rest) > _REST
        self._state = replace(state, scanned=reached, upto=None, rest=() if again else tuple(rest), again=again)
        if group.ended is None or self._state.rest:
            return
        if again and state.passes < _PASSES:
            _log.info("%s is re-read in chunks: the keys of too many rows changed during the snapshot.", outcome.table)
            self._restart(state.passes + 1)
            return
        if again:
            _log.warning(
                "%s: keys of rows changed during %d passes of the snapshot, and TOASTed values of these rows "
                "may be missing. Take a blocking snapshot of it.",
                outcome.table,
                _PASSES + 1,
            )
        self._end_table(ScanStatus.SUCCEEDED)

    def _note_failure(self, table: TableId, error: CdcError) -> None:
        _log.warning("Rows of %s could not be written to the lake and will be re-read: %s", table, error)
        if isinstance(error, RereadNeededError):
            # Changes since the table was started can no longer be read: its snapshot starts again.
            self._restart(self._state.passes)
        self._retry()

    def _restart(self, passes: int) -> None:
        """Read the current table again from its first row."""
        self._drop()
        self._queue.progress = self._queue.progress.restarted()
        self._state = replace(self._state.for_next_table(self._queue.progress), passes=passes)
        self._store()

    def _end_table(self, status: ScanStatus) -> None:
        self._drop()
        self._tries = 0
        self._is_held_up = False
        if self._queue.progress.current is not None:
            self._queue.done(status)
        self._state = self._state.for_next_table(self._queue.progress)
        self._store()
        if self._queue.progress.current is None:
            self._queue.notify(SnapshotStatus.COMPLETED)

    def _read_at_once(self, lake: Lake) -> None:
        """Read the tables of blocking snapshots while the caller does not read the stream."""
        wanted = [one.table for one in self._queue.progress.blocking]
        numbers = lake.reserve(wanted)
        if numbers is None:
            return
        names = ",".join(str(table) for table in wanted)
        self._notifier.notify(BLOCKING, SnapshotStatus.STARTED, data_collections=names)
        try:
            taken = self._take(numbers)
        except TransientError as error:
            _log.warning("A blocking snapshot failed and will be retried: %s", error)
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            # Some tables may have been committed before.
            for table in wanted:
                lake.note_read(table)
            return
        except CdcError as error:
            taken = dict.fromkeys(wanted, error)
        failpoints.hit(failpoints.AFTER_BLOCKING)
        # Also of tables with an error, which may have been raised after their commit.
        for table in wanted:
            lake.note_read(table)
            if table in taken:
                self._tell(table, taken[table], names)
        left = tuple(one for one in self._queue.progress.blocking if one.table in wanted and one.table not in taken)
        self._queue.progress = replace(self._queue.progress, blocking=left)
        self._adopt()
        self._store()
        if left:
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            return
        done = [each for each in taken.values() if not isinstance(each, CdcError)]
        status = SnapshotStatus.COMPLETED if len(done) == len(taken) else SnapshotStatus.ABORTED
        rows = sum(report.rows for report in done)
        self._notifier.notify(BLOCKING, status, data_collections=names, total_rows_scanned=rows)

    def _tell(self, table: TableId, outcome: SnapshotReport | CdcError, names: str) -> None:
        """Send the result of one table of a blocking snapshot."""
        if isinstance(outcome, CdcError):
            _log.error("%s was not read by a blocking snapshot: %s", table, outcome)
            status, rows = ScanStatus.SQL_EXCEPTION, 0
        else:
            status, rows = ScanStatus.SUCCEEDED if outcome.rows else ScanStatus.EMPTY, outcome.rows
        self._notifier.notify(
            BLOCKING,
            SnapshotStatus.TABLE_SCAN_COMPLETED,
            data_collections=names,
            scanned_collection=table,
            total_rows_scanned=rows,
            status=status.value,
        )


def _discard(reading: Future[ChunkGroup]) -> None:
    if not reading.cancelled() and reading.exception() is None:
        reading.result().discard()
