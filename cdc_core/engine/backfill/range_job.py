"""An incremental snapshot as a job: reads ranges of tables in Spark tasks, stages them, and sees them written.

    plan ─▶ ranges, read in parallel ─▶ staged ─▶ written by the run that has the slot ─▶ reported
                                                └▶ without one: this process streams until they are written

Nothing here uses the slot while another process streams. What is staged outlives this process and that one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from cdc_core.engine.backfill.range_plans import (
    LOCKED_TRIES,
    RequestedRange,
    key_ranges,
    parsed_range,
    planned_tables,
    readable_tables,
    requested_ranges,
    unreadable,
)
from cdc_core.engine.connector_lake import ConnectorLake
from cdc_core.errors import CdcError, InUseError, LockedError, TransientError
from cdc_core.lake import ProgressLog, StagedRows, lake_properties
from cdc_core.postgres import Source
from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot import (
    IncrementalProgress,
    KeyRange,
    LakeProgress,
    Notifier,
    RangeFacts,
    RangeRead,
    RangeReads,
    RangeReport,
    ScanStatus,
    SnapshotStatus,
)

_log = logging.getLogger(__name__)

_NAP_SECONDS, _LOOK_SECONDS, _TELL_SECONDS, _FOLLOW_SECONDS = 0.1, 0.5, 1.0, 2.0
_RETRY_SECONDS = 1.0
_TRIES = 20

StreamUntil = Callable[[Callable[[], bool]], None]
"""Streams until the function returns True. Raises InUseError if another process has the slot."""


@dataclass(frozen=True, slots=True)
class JobCallbacks:
    """What the caller gets: ``on_progress`` about once a second and at each range's end, ``on_range`` at its end."""

    on_progress: Callable[[IncrementalProgress], None] | None = None
    on_range: Callable[[RangeReport], None] | None = None
    should_stop: Callable[[], bool] | None = None


def plan_ranges(
    source: Source,
    captured: list[TableSchema],
    names: Sequence[TableId] | None,
    reads: Callable[[], AbstractContextManager[RangeReads]],
    *,
    renew: bool = False,
) -> list[KeyRange]:
    """Return the ranges of tables (None: all ``captured`` ones that can be read so), as they are planned.

    ``reads`` opens what reads ranges; Spark is not needed to plan them.
    """
    chosen = readable_tables(source, captured, names)
    if not chosen:
        return []
    with reads() as opened:
        plans, locked = planned_tables(opened, chosen, 1, renew=renew)
        if locked and names is not None:
            raise next(iter(locked.values()))
        return [key for planned in plans.values() for key in key_ranges(planned)]


def read_ranges(
    lake: ConnectorLake,
    source: Source,
    captured: list[TableSchema],
    names: Sequence[str | TableId | KeyRange] | None,
    reads: RangeReads,
    notifier: Notifier,
    stream: StreamUntil,
    callbacks: JobCallbacks,
    wait_seconds: float,
) -> list[RangeReport]:
    """Read ranges, see them written, and return what became of each; see ``Connector.incremental_snapshot``."""
    if names is None:
        chosen = source.selection.chosen_for_snapshot(captured, None)
        names = [table.id for table in readable_tables(source, chosen, None)]
    asked = [parsed_range(name) for name in names]
    tables = list(dict.fromkeys(table for table, _, _ in asked))
    known = {table.id: table for table in readable_tables(source, captured, tables)}
    plans, locked = planned_tables(reads, [known[table] for table in tables], LOCKED_TRIES)
    ranges = requested_ranges(plans, [asked_range for asked_range in asked if asked_range[0] in plans])
    job = RangeJob(lake, reads, callbacks, ranges, locked)
    with _notifying(notifier, tables, job):
        job.read()
        job.await_written(source, stream, wait_seconds)
    for error in job.locked.values():
        raise error
    return job.reports


@contextmanager
def _notifying(notifier: Notifier, tables: Sequence[TableId], job: RangeJob) -> Iterator[None]:
    """Send the notifications of an incremental snapshot: its start, the end of each table, completion or abort.

    IN_PROGRESS is sent by the run that writes.
    """
    names = ",".join(str(table) for table in tables)
    notifier.incremental(SnapshotStatus.STARTED, data_collections=names)
    try:
        yield
    except BaseException:
        notifier.incremental(SnapshotStatus.ABORTED)
        raise
    for table in tables:
        reports = [report for report in job.reports if report.range.table == table]
        rows = sum(report.rows for report in reports)
        is_whole = bool(reports) and all(report.is_applied for report in reports)
        written = ScanStatus.SUCCEEDED if rows else ScanStatus.EMPTY
        notifier.incremental(
            SnapshotStatus.TABLE_SCAN_COMPLETED,
            scanned_collection=table,
            total_rows_scanned=rows,
            status=(written if is_whole else ScanStatus.STOPPED).value,
        )
    is_done = not job.locked and all(report.is_applied for report in job.reports)
    notifier.incremental(SnapshotStatus.COMPLETED if is_done else SnapshotStatus.ABORTED)


class RangeJob:
    """The ranges of one call. ``locked`` are tables that could not be read, because another session has locked them."""

    def __init__(
        self,
        lake: ConnectorLake,
        reads: RangeReads,
        callbacks: JobCallbacks,
        ranges: list[RequestedRange],
        locked: dict[TableId, CdcError],
    ) -> None:
        self._lake = lake
        self._reads = reads
        self._callbacks = callbacks
        self._ranges = ranges
        self.locked = locked
        self._staged = StagedRows(lake.paths.staged, lake_properties(lake.options.lake_history_minutes))
        self._began = time.monotonic()
        self._read_at: dict[TableId, float] = {}
        self._looked_at = self._told_at = float("-inf")
        self._moved_at = time.monotonic()
        self._followed_at = float("-inf")
        self._confirmed = self._reached = 0

    @property
    def reports(self) -> list[RangeReport]:
        """What became of each range."""
        return [asked.report or self._unwritten(asked) for asked in self._ranges]

    @property
    def is_stopped(self) -> bool:
        """Whether the caller wants it to end."""
        return self._callbacks.should_stop is not None and self._callbacks.should_stop()

    def read(self) -> None:
        """Read all ranges, and stage them, but those of tables that are locked.

        Raises the first error of another kind, after those that are being read were staged.
        """
        failed: CdcError | None = None
        while True:
            for asked in self._ranges:
                if asked.reading is not None and asked.reading.done():
                    failed = self._note_read(asked, asked.reading) or failed
            is_over = failed is not None or self.is_stopped
            for asked in self._ranges:
                if is_over and asked.reading is not None and asked.reading.cancel():
                    asked.reading = None
            unread = [
                asked
                for asked in self._ranges
                if not asked.is_staged and asked.report is None and asked.reading is None
            ]
            left = [asked for asked in unread if asked.key.table not in self.locked]
            if not is_over:
                # As many wait as are read, so that the next one begins at once.
                now, room = time.monotonic(), 2 * self._reads.threads - len(self._reading)
                for asked in [asked for asked in left if now >= asked.retry_at][: max(0, room)]:
                    asked.reading = self._reads.read(asked.wanted)
            reading = self._reading
            if not reading and (is_over or not left):
                break
            self.look()
            self._tell()
            if reading:
                wait(reading, _NAP_SECONDS, FIRST_COMPLETED)
            else:
                time.sleep(_NAP_SECONDS)
        self._tell(now=True)
        if failed is not None:
            raise failed

    def await_written(self, source: Source, stream: StreamUntil, wait_seconds: float) -> None:
        """Wait until the staged ranges are written; stream until then if no other process does.

        Ends when nothing has been written for ``wait_seconds``, and the stream has come no nearer to what was read.
        """
        self._moved_at = time.monotonic()

        def is_over() -> bool:
            self.look()
            self._follow(source)
            self._tell()
            waited = time.monotonic() - self._moved_at >= wait_seconds
            return waited or self.is_stopped or not self._waiting

        while not is_over():
            if source.is_in_use(self._lake.slot):
                time.sleep(_NAP_SECONDS)
                continue
            try:
                stream(is_over)
            except InUseError:
                time.sleep(_NAP_SECONDS)
        self.look(now=True)
        self._tell(now=True)

    def _follow(self, source: Source) -> None:
        """Count as progress that the stream, behind what was read, comes nearer."""
        if time.monotonic() - self._followed_at < _FOLLOW_SECONDS:
            return
        self._followed_at = time.monotonic()
        confirmed = source.slot().confirmed_lsn or 0
        if self._confirmed < confirmed < self._reached:
            self._moved_at = time.monotonic()
        self._confirmed = confirmed

    def look(self, *, now: bool = False) -> None:
        """Take note of ranges that are no longer staged: they are in the lake table, or were discarded."""
        if not self._waiting or (not now and time.monotonic() - self._looked_at < _LOOK_SECONDS):
            return
        self._looked_at = time.monotonic()
        waiting = self._waiting
        facts = [RangeFacts.from_json(file.facts) for file in self._staged.look()]
        there = {(staged.range.request, staged.range.number) for staged in facts}
        names = {(asked.wanted.request, asked.wanted.number) for asked in waiting}
        mine = [staged.reached for staged in facts if (staged.range.request, staged.range.number) in names]
        self._reached = max(mine, default=0)
        gone = [asked for asked in waiting if (asked.wanted.request, asked.wanted.number) not in there]
        if not gone:
            return
        discarded = self._discarded()
        self._moved_at = time.monotonic()
        for asked in gone:
            reason = discarded.get((asked.wanted.request, asked.wanted.number))
            asked.report = RangeReport(asked.key, asked.rows, reason is None, reason or "", asked.seconds)
            if self._callbacks.on_range is not None:
                self._callbacks.on_range(asked.report)
        self._tell(now=True)

    @property
    def _reading(self) -> list[Future[RangeRead]]:
        return [asked.reading for asked in self._ranges if asked.reading is not None]

    @property
    def _waiting(self) -> list[RequestedRange]:
        return [asked for asked in self._ranges if asked.is_staged and asked.report is None]

    def _discarded(self) -> dict[tuple[str, int], str]:

        text = ProgressLog(self._lake.paths.incremental, 0).read()
        return {(entry.request, entry.number): entry.reason for entry in LakeProgress.from_json(text).discarded}

    def _note_read(self, asked: RequestedRange, reading: Future[RangeRead]) -> CdcError | None:
        """Take note of a reading that has ended; returns the error because of which the job ends."""
        asked.reading = None
        try:
            read = reading.result()
        except LockedError as error:
            if self._tried(asked, error, LOCKED_TRIES) is not None:
                self.locked[asked.key.table] = error
            return None
        except TransientError as error:
            return self._tried(asked, error)
        except CdcError as error:
            return error
        if read.ended is not None:
            return unreadable(asked.key.table, read.ended)
        if read.is_altered:
            return self._tried(asked, TransientError(f"{asked.key.table} was altered while it was read.", "Try again."))
        asked.is_staged, asked.rows, asked.seconds = True, read.rows, read.seconds
        self._read_at[asked.key.table] = time.monotonic()
        self._moved_at = time.monotonic()
        return None

    def _tried(self, asked: RequestedRange, error: CdcError, most: int = _TRIES) -> CdcError | None:
        asked.tries += 1
        if asked.tries >= most:
            return error
        _log.warning("Range %s is read again: %s", asked.key.name, error)
        asked.retry_at = time.monotonic() + _RETRY_SECONDS
        return None

    def _unwritten(self, asked: RequestedRange) -> RangeReport:
        reason = (
            "it is staged, and is written by the run that streams as soon as the table's lake has passed its position"
            if asked.is_staged
            else "it was not read"
        )
        return RangeReport(asked.key, asked.rows, False, reason, asked.seconds)

    def _tell(self, *, now: bool = False) -> None:
        """Tell the progress of each table, about once a second."""
        told = self._callbacks.on_progress
        if told is None or (not now and time.monotonic() - self._told_at < _TELL_SECONDS):
            return
        self._told_at = time.monotonic()
        for table in dict.fromkeys(asked.key.table for asked in self._ranges):
            told(self._progress(table))

    def _progress(self, table: TableId) -> IncrementalProgress:
        ranges = [asked for asked in self._ranges if asked.key.table == table]
        expected = [asked.key.rows for asked in ranges]
        is_read = all(asked.is_staged for asked in ranges)
        until = self._read_at.get(table, self._began) if is_read else time.monotonic()
        return IncrementalProgress(
            table,
            sum(asked.rows for asked in ranges),
            sum(asked.is_staged for asked in ranges),
            sum(asked.report is not None and asked.report.is_applied for asked in ranges),
            len(ranges),
            until - self._began,
            None if None in expected else sum(rows or 0 for rows in expected),
        )
