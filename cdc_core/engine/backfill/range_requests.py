"""Reads the tables that signals request, in the ranges of their keys, one table at a time; writes nothing to the lake.

    queue ─▶ plan of the first table ─▶ its ranges, some at a time, a few ahead of what is written ─▶ staged
                                                  all of them written ─▶ rows that moved meanwhile ─▶ next table

What is stored is which ranges are in the lake table. A range that is staged, by whichever run, is not read again; one
that was being read when its run ended is read again as a whole.
"""

from __future__ import annotations

import logging
import time
import uuid
from concurrent.futures import Future
from dataclasses import replace

from cdc_core.engine.backfill.staged_writes import MAX_TRIES, StagedWrites
from cdc_core.engine.backfill.stored import StoredProgress
from cdc_core.errors import CdcError, LockedError, OlderTransactionsError, TransientError
from cdc_core.lake import RangePlan
from cdc_core.schema import TableId
from cdc_core.snapshot import (
    Collection,
    Planned,
    RangeRead,
    RangeReads,
    RangeToRead,
    Request,
    ScanStatus,
    Search,
    SnapshotQueue,
    SnapshotStatus,
)

_log = logging.getLogger(__name__)

# Ranges that are to be read next, or are staged and not written yet, in addition to those that are being read.
_AHEAD = 2
RETRY_SECONDS = 1.0
_ENDED = (ScanStatus.UNKNOWN_SCHEMA, ScanStatus.NO_PRIMARY_KEY)


class Pace:
    """When the next attempt to read rows is due, after one that failed for now."""

    def __init__(self) -> None:
        self._retry_at = float("-inf")

    @property
    def may_try(self) -> bool:
        """Whether something may be read."""
        return time.monotonic() >= self._retry_at

    def wait(self) -> None:
        """Read nothing for a moment."""
        self._retry_at = time.monotonic() + RETRY_SECONDS


class RangeRequests:
    """The reading of one run. For one thread. ``moved_keys``: how many rows that moved are read by one statement."""

    def __init__(
        self,
        queue: SnapshotQueue,
        stored: StoredProgress,
        reads: RangeReads,
        writes: StagedWrites,
        pace: Pace,
        moved_keys: int,
    ) -> None:
        self._queue = queue
        self._stored = stored
        self._reads = reads
        self._writes = writes
        self._pace = pace
        self._moved_keys = moved_keys
        self._planning: Future[Planned | ScanStatus] | None = None
        self._plan: RangePlan | None = None
        self._reading: dict[int, Future[RangeRead]] = {}
        self._moved: dict[TableId, Future[RangeRead]] = {}
        self._is_held = False
        self._locked: set[TableId] = set()
        self._tries = 0

    @property
    def is_busy(self) -> bool:
        """Whether rows are to be read, unless their table cannot be read yet."""
        progress = self._stored.now.progress
        unreadable = self._locked | self._writes.held
        waits = self._is_held or (progress.current is not None and progress.current.table in unreadable)
        return (bool(progress.queue) and not progress.paused and not waits) or bool(self._moved)

    def changed(self, signal: tuple[int, int] | None = None) -> None:
        """Follow a changed queue, and store it; ``signal`` is the position of the last processed signal."""
        before, now = self._stored.now.progress, self._queue.progress
        state = replace(self._stored.now, progress=now)
        if signal is not None:
            state = replace(state, signal=signal)
        if before.current != now.current or (before.maximum_key is not None and now.maximum_key is None):
            self._forget()
            state = state.for_next_table(now)
            self._is_held, self._tries = False, 0
            self._locked.clear()
        self._stored.store(state)

    def go_on(self) -> None:
        """Record ranges that were read, start the next ones, and end tables that are complete."""
        self._note_moved()
        current = self._stored.now.progress.current
        if current is not None:
            self._go_on_with(current)
        if self._pace.may_try:
            self._read_moved()

    def close(self) -> None:
        """Discard the ranges that are being read; staged ones stay."""
        self._cancel()
        self._reading.clear()

    def _cancel(self) -> None:
        """Do not begin to read the ranges that are read next."""
        self._reading = {number: reading for number, reading in self._reading.items() if not reading.cancel()}

    @property
    def _request(self) -> Request:
        return self._stored.now.request

    def _go_on_with(self, current: Collection) -> None:
        self._note_read(current)
        if self._stored.now.progress.current != current:
            return
        if self._request.id and current.table in self._writes.refused:
            self._end(current.table, ScanStatus.SKIPPED)
        elif self._plan is None:
            self._note_plan(current)
        elif self._is_complete(current.table):
            self._complete(current.table)
        elif self._stored.now.progress.paused:
            self._cancel()
        elif self._pace.may_try:
            self._read_on(current, self._plan)

    def _note_plan(self, current: Collection) -> None:
        if self._planning is None:
            if self._pace.may_try and not self._stored.now.progress.paused:
                self._planning = self._reads.plan(current)
            return
        if not self._planning.done():
            return
        planning, self._planning = self._planning, None
        try:
            planned = planning.result()
        except CdcError as error:
            self._note_failure(current.table, error)
        else:
            self._is_held = False
            if isinstance(planned, ScanStatus):
                self._end_unread(current.table, planned)
            else:
                self._begin(planned)

    def _begin(self, planned: Planned) -> None:
        """Begin the ranges of a plan; continue with the remaining ones if they are the ranges that were begun."""
        plan, request = planned.plan, self._request
        self._plan = plan
        if request.id and request.plan == plan.id:
            return
        self._writes.drop(request.id)
        self._writes.refused.discard(plan.table)
        made = Request(str(uuid.uuid4()), plan.id, plan.count, planned.since, expected=plan.rows, began=time.time())
        # Not None: a request for the same table that comes now is another one.
        progress = self._stored.now.progress.begun(plan.key, ())
        self._stored.store(replace(self._stored.now, progress=progress, request=made))
        self._queue.progress = progress

    def _read_on(self, current: Collection, plan: RangePlan) -> None:
        request, staged = self._request, self._writes.staged(self._request.id)
        there = {*request.done, *staged, *self._reading}
        most = self._reads.threads + _AHEAD
        for number in (number for number in range(1, plan.count + 1) if number not in there):
            if len(self._reading) + len(staged) >= most:
                return
            after, upto = plan.range(number)
            to_read = RangeToRead(request.id, number, current, request.since, after, upto)
            self._reading[number] = self._reads.read(to_read)

    def _note_read(self, current: Collection) -> None:
        for number, reading in [entry for entry in self._reading.items() if entry[1].done()]:
            del self._reading[number]
            try:
                read = reading.result()
            except CdcError as error:
                self._note_failure(current.table, error)
            else:
                self._note_range(current.table, read)
            self._writes.look(now=True)
            if self._stored.now.progress.current != current:
                return

    def _note_range(self, table: TableId, read: RangeRead) -> None:
        if read.ended is not None:
            self._end_unread(table, read.ended)
        elif read.is_altered:
            # Its key may have changed with it: the next attempt plans the ranges again.
            self._plan = None
            self._retry(table)
        else:
            self._is_held, self._tries = False, 0
            self._locked.discard(table)

    def _note_failure(self, table: TableId, error: CdcError) -> None:
        if isinstance(error, OlderTransactionsError):
            if not self._is_held:
                _log.warning("An incremental snapshot waits: %s", error)
            self._is_held = True
            self._pace.wait()
        elif isinstance(error, LockedError):
            self._postpone(table, error)
        elif isinstance(error, TransientError):
            _log.warning("Rows of an incremental snapshot will be re-read: %s", error)
            self._retry(table)
        else:
            _log.warning("%s is skipped by the incremental snapshot: %s", table, error)
            self._end(table, ScanStatus.SQL_EXCEPTION)

    def _postpone(self, table: TableId, error: LockedError) -> None:
        """Read the other tables first; this one is tried again until it is no longer locked."""
        if table not in self._locked:
            _log.warning("An incremental snapshot continues with other tables: %s", error)
        self._locked.add(table)
        self._pace.wait()
        progress = self._stored.now.progress.postponed()
        if progress != self._stored.now.progress:
            self._forget()
            self._stored.store(self._stored.now.for_next_table(progress))
            self._queue.progress = progress

    def _retry(self, table: TableId) -> None:
        self._pace.wait()
        self._tries += 1
        if self._tries >= MAX_TRIES:
            _log.error(
                "%s is skipped by the incremental snapshot: %d attempts to read its rows failed. "
                "See the log for the cause, and request the snapshot again.",
                *(table, MAX_TRIES),
            )
            self._end(table, ScanStatus.SKIPPED)

    def _is_complete(self, table: TableId) -> bool:
        """Whether all ranges were written, and nothing of the table is left to be written or read again."""
        request, search = self._request, self._stored.now.searches.get(table)
        moved = table in self._moved or (search is not None and bool(search.moved)) or self._writes.has_moved(table)
        return len(request.done) == request.ranges and not moved

    def _complete(self, table: TableId) -> None:
        search = self._stored.now.searches.get(table)
        if search is None or not search.again:
            self._end(table, ScanStatus.SUCCEEDED if self._request.rows else ScanStatus.EMPTY)
        elif search.may_begin_again:
            self._restart(table, search)
        else:
            _log.warning(
                "%s: keys of rows changed during %d passes of the snapshot, and TOASTed values of these rows "
                "may be missing. Take a blocking snapshot of it.",
                *(table, search.passes + 1),
            )
            self._stored.now = self._stored.now.with_search(table, None)
            self._end(table, ScanStatus.SUCCEEDED)

    def _restart(self, table: TableId, search: Search) -> None:
        """Read the current table again from its first row."""
        _log.info("%s is re-read in chunks: the keys of too many rows changed during the snapshot.", table)
        self._forget()
        progress = self._stored.now.progress.restarted()
        again = replace(search, again=False, moved=(), passes=search.passes + 1)
        self._stored.store(self._stored.now.for_next_table(progress).with_search(table, again))
        self._queue.progress = progress

    def _end_unread(self, table: TableId, status: ScanStatus) -> None:
        _log.warning("%s is skipped by the incremental snapshot: %s.", table, status.value)
        self._end(table, status)

    def _end(self, table: TableId, status: ScanStatus) -> None:
        """End the current table and continue with the next."""
        self._writes.refused.discard(table)
        self._locked.discard(table)
        self._forget()
        self._is_held, self._tries = False, 0
        progress = self._stored.now.progress.next_table()
        self._queue.done(table, status)
        self._stored.store(self._stored.now.for_next_table(progress))
        self._queue.progress = progress
        if progress.current is None:
            self._queue.notify(SnapshotStatus.COMPLETED)

    def _forget(self) -> None:
        """Discard the ranges of the current request; none of them is written from now on."""
        self._writes.drop(self._request.id)
        self._plan, self._planning = None, None
        self.close()

    def _read_moved(self) -> None:
        """Read rows that moved once more, and tables of which too many did, once nothing else of them is staged."""
        current = self._stored.now.progress.current
        for table, search in list(self._stored.now.searches.items()):
            is_read = current is not None and current.table == table
            is_whole = not is_read or len(self._request.done) == self._request.ranges > 0
            if table in self._moved or self._writes.has(table) or not is_whole or table in self._writes.held:
                continue
            if search.moved:
                to_read = RangeToRead("", 0, Collection(table), search.upto, keys=search.moved[: self._moved_keys])
                self._moved[table] = self._reads.read(to_read)
            elif not is_read:
                self._settle(table, search)

    def _settle(self, table: TableId, search: Search) -> None:
        """End the search of a table that other processes have read; have the table read as a whole if it must be."""
        state = self._stored.now.with_search(table, None)
        if search.again and search.may_begin_again:
            _log.info("%s is re-read in chunks: the keys of too many rows changed during the snapshot.", table)
            self._queue.progress = state.progress.with_tables((Collection(table),))
            state = state.with_search(table, replace(search, again=False, passes=search.passes + 1))
            self._stored.now = state
            self.changed()
        else:
            self._stored.now = state

    def _note_moved(self) -> None:
        for table, reading in [entry for entry in self._moved.items() if entry[1].done()]:
            del self._moved[table]
            try:
                read = reading.result()
            except TransientError as error:
                _log.warning("Rows of an incremental snapshot will be re-read: %s", error)
                self._pace.wait()
            except CdcError as error:
                _log.warning("Rows of %s that moved are not read again: %s", table, error)
                self._stored.now = self._stored.now.with_search(table, None)
            else:
                if read.ended in _ENDED:
                    self._stored.now = self._stored.now.with_search(table, None)
                elif read.is_altered:
                    self._pace.wait()
                self._writes.look(now=True)
