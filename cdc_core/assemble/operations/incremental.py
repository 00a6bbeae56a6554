"""Operation ``incremental snapshot``: reads ranges of tables in Spark tasks, stages them, and sees them written.

    plan ─▶ ranges, read in parallel ─▶ staged ─▶ written by the run that has the slot ─▶ reported
                                                └▶ without one: this process streams until they are written

Nothing here uses the slot while another process streams. What is staged outlives this process and that one.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.notifications import open_notifier
from cdc_core.assemble.prerequisites import chosen_tables
from cdc_core.assemble.range_reads import range_reads
from cdc_core.errors import CdcError, InUseError, LockedError, SourceError, TableError, TransientError
from cdc_core.postgres import Source
from cdc_core.schema import TableId, TableSchema, row_key
from cdc_core.snapshot import (
    INCREMENTAL,
    Collection,
    IncrementalProgress,
    KeyRange,
    Notifier,
    Planned,
    RangeFacts,
    RangeRead,
    RangeReads,
    RangeReport,
    RangeToRead,
    ScanStatus,
    SnapshotStatus,
    UnsentChanges,
)

_log = logging.getLogger(__name__)

_NAP_SECONDS, _LOOK_SECONDS, _TELL_SECONDS, _FOLLOW_SECONDS = 0.1, 0.5, 1.0, 2.0
_PLAN_SECONDS = 600.0
_RETRY_SECONDS = 1.0
_TRIES = 20
# Each waits for snapshot.lock.timeout.ms.
_LOCKED_TRIES = 3

StreamUntil = Callable[[Callable[[], bool]], None]
"""Streams until the function returns True. Raises InUseError if another process has the slot."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What the caller gets: ``on_progress`` about once a second and at each range's end, ``on_range`` at its end."""

    on_progress: Callable[[IncrementalProgress], None] | None = None
    on_range: Callable[[RangeReport], None] | None = None
    should_stop: Callable[[], bool] | None = None


def plan_incremental(context: RunContext, tables: Sequence[TableId] | None, *, renew: bool = False) -> list[KeyRange]:
    """Return the ranges of tables (None: all captured ones that can be read so), as they are planned."""
    with context.source() as source:
        chosen = _readable(context, source, tables)
        if not chosen:
            return []
        with closing(_reads(context, source, _no_spark)) as reads:
            plans, locked = _plans(reads, chosen, 1, renew=renew)
            if locked and tables is not None:
                raise next(iter(locked.values()))
            return [each for planned in plans.values() for each in _key_ranges(planned)]


def incremental_snapshot(
    context: RunContext,
    names: Sequence[str | TableId | KeyRange],
    spark: Callable[[], Any],
    stream: StreamUntil,
    callbacks: Callbacks,
    wait_seconds: float,
) -> list[RangeReport]:
    """Read ranges, and return what became of each: as ``Connector.incremental_snapshot`` describes."""
    asked = [_parsed(name) for name in names]
    tables = list(dict.fromkeys(table for table, _, _ in asked))
    with context.source() as source:
        known = {table.id: table for table in _readable(context, source, tables)}
        with closing(_reads(context, source, spark)) as reads:
            plans, locked = _plans(reads, [known[table] for table in tables], _LOCKED_TRIES)
            job = _Job(context, reads, callbacks, _wanted(plans, [one for one in asked if one[0] in plans]), locked)
            with open_notifier(context, None) as notifier, _notifying(notifier, tables, job):
                job.read()
                job.await_written(source, stream, wait_seconds)
            for error in job.locked.values():
                raise error
            return job.reports


@contextmanager
def _notifying(notifier: Notifier, tables: Sequence[TableId], job: _Job) -> Iterator[None]:
    """Send the notifications of an incremental snapshot: its start, the end of each table, completion or abort.

    IN_PROGRESS is sent by the run that writes.
    """
    names = ",".join(str(table) for table in tables)
    notifier.notify(INCREMENTAL, SnapshotStatus.STARTED, data_collections=names)
    try:
        yield
    except BaseException:
        notifier.notify(INCREMENTAL, SnapshotStatus.ABORTED)
        raise
    for table in tables:
        found = [report for report in job.reports if report.range.table == table]
        rows = sum(report.rows for report in found)
        is_whole = bool(found) and all(report.is_applied for report in found)
        written = ScanStatus.SUCCEEDED if rows else ScanStatus.EMPTY
        notifier.notify(
            INCREMENTAL,
            SnapshotStatus.TABLE_SCAN_COMPLETED,
            scanned_collection=table,
            total_rows_scanned=rows,
            status=(written if is_whole else ScanStatus.STOPPED).value,
        )
    is_done = not job.locked and all(report.is_applied for report in job.reports)
    notifier.notify(INCREMENTAL, SnapshotStatus.COMPLETED if is_done else SnapshotStatus.ABORTED)


def _parsed(name: str | TableId | KeyRange) -> tuple[TableId, int | None, str]:
    if isinstance(name, TableId):
        return name, None, ""
    if isinstance(name, KeyRange):
        return name.table, name.number, name.plan
    try:
        return *KeyRange.parse(name), ""
    except ValueError as error:
        raise TableError(f"{name!r} does not name a range of a table.", f"Write {error}.", "") from None


def _readable(context: RunContext, source: Source, wanted: Sequence[TableId] | None) -> list[TableSchema]:
    """Return the tables that can be read in chunks; of those that are named, all. Raises TableError, SourceError."""
    if not source.slot().exists:
        raise SourceError(
            f"Replication slot {context.slot} does not exist: nothing has been captured yet.",
            "Take the first snapshot (wal2lake run).",
        )
    captured = context.captured(source)
    published = set(source.published())
    if wanted is None:
        return [table for table in captured if row_key(table) and table.id in published]
    chosen = {table.id: table for table in chosen_tables(captured, wanted)}
    for table in chosen.values():
        if not row_key(table):
            raise TableError(
                f"{table.id} has no key, and an incremental snapshot reads a table in the order of its key.",
                f"Add a primary key, or read the table as a whole: wal2lake snapshot with {table.id}.",
                str(table.id),
            )
        if table.id not in published:
            raise TableError(
                f"{table.id} is not published, so its changes are not in the stream.",
                "Start wal2lake run, which publishes it, or add it to the publication.",
                str(table.id),
            )
    return [chosen[table] for table in dict.fromkeys(wanted)]


def _reads(context: RunContext, source: Source, spark: Callable[[], Any]) -> RangeReads:
    return range_reads(
        context, source, spark, UnsentChanges(context.lake.paths, context.lake.scope), beside_rounds=False
    )


def _no_spark() -> Any:
    raise AssertionError("ranges are planned without Spark")


def _plans(
    reads: RangeReads, tables: Sequence[TableSchema], tries: int, *, renew: bool = False
) -> tuple[dict[TableId, Planned], dict[TableId, CdcError]]:
    """Return the plan of each table, and the error of each that another session had locked each time."""
    plans, locked = dict[TableId, Planned](), dict[TableId, CdcError]()
    for attempt in range(tries):
        for table in [one for one in tables if one.id not in plans]:
            try:
                plans[table.id] = _planned(reads, table, renew=renew)
                locked.pop(table.id, None)
            except LockedError as error:
                if not attempt:
                    _log.warning("Other tables are read first: %s", error)
                locked[table.id] = error
    return {table.id: plans[table.id] for table in tables if table.id in plans}, locked


def _planned(reads: RangeReads, table: TableSchema, *, renew: bool = False) -> Planned:
    found = reads.plan(Collection(table.id), renew=renew).result(_PLAN_SECONDS)
    if isinstance(found, ScanStatus):
        raise _unreadable(table.id, found)
    return found


def _unreadable(table: TableId, status: ScanStatus) -> TableError:
    if status is ScanStatus.UNKNOWN_SCHEMA:
        return TableError(f"{table} no longer exists in the source.", "Check the name.", str(table))
    return TableError(f"{table} has no key any more.", "Add a primary key.", str(table))


def _key_ranges(planned: Planned) -> list[KeyRange]:
    plan = planned.plan
    rows = None if plan.rows is None else plan.rows // plan.count
    return [KeyRange(plan.table, number, plan.count, rows, plan.id) for number in range(1, plan.count + 1)]


@dataclass(slots=True)
class _Range:
    """One range under way: ``rows`` are those that were read; ``reading`` its reading, None before and after."""

    key: KeyRange
    wanted: RangeToRead
    reading: Future[RangeRead] | None = None
    rows: int = 0
    is_staged: bool = False
    tries: int = 0
    began: float = field(default_factory=time.monotonic)
    retry_at: float = 0.0
    report: RangeReport | None = None


def _wanted(plans: dict[TableId, Planned], asked: Sequence[tuple[TableId, int | None, str]]) -> list[_Range]:
    """Return the ranges that are asked for, each once, in their order. Raises TableError for one that is unknown."""
    request, found = str(uuid.uuid4()), dict[tuple[TableId, int], _Range]()
    for table, number, plan_id in asked:
        planned = plans[table]
        plan, ranges = planned.plan, _key_ranges(planned)
        if (number is not None and number > plan.count) or plan_id not in ("", plan.id):
            raise TableError(
                f"{table} is divided into {plan.count} ranges now, and range {number} is not one of them, or another.",
                "Ask for the present ranges (plan_incremental), or for the table as a whole.",
                str(table),
            )
        for key in ranges if number is None else [ranges[number - 1]]:
            after, upto = plan.range(key.number)
            # Numbers of ranges repeat in another table, so each table's are a request.
            wanted = RangeToRead(f"{request}/{table}", key.number, Collection(table), planned.since, after, upto)
            found.setdefault((table, key.number), _Range(key, wanted))
    return list(found.values())


class _Job:
    """The ranges of one call. ``locked`` are tables that could not be read, because another session has locked them."""

    def __init__(
        self,
        context: RunContext,
        reads: RangeReads,
        callbacks: Callbacks,
        ranges: list[_Range],
        locked: dict[TableId, CdcError],
    ) -> None:
        from cdc_core.lake import StagedRows, lake_properties

        self._context = context
        self._reads = reads
        self._callbacks = callbacks
        self._ranges = ranges
        self.locked = locked
        self._staged = StagedRows(context.lake.paths.staged, lake_properties(context.config.lake.lake_history_minutes))
        self._began = time.monotonic()
        self._read_at: dict[TableId, float] = {}
        self._looked_at = self._told_at = float("-inf")
        self._moved_at = time.monotonic()
        self._followed_at = float("-inf")
        self._confirmed = self._reached = 0

    @property
    def reports(self) -> list[RangeReport]:
        """What became of each range."""
        return [each.report or self._unwritten(each) for each in self._ranges]

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
            for each in [one for one in self._ranges if one.reading is not None and one.reading.done()]:
                failed = self._note_read(each) or failed
            unread = [one for one in self._ranges if not one.is_staged and one.report is None and one.reading is None]
            left = [one for one in unread if one.key.table not in self.locked]
            running = sum(one.reading is not None for one in self._ranges)
            if failed is not None or self.is_stopped or not left:
                if not running:
                    break
            else:
                now = time.monotonic()
                for each in [one for one in left if now >= one.retry_at][: self._reads.threads - running]:
                    each.reading = self._reads.read(each.wanted)
            self.look()
            self._tell()
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
            if source.is_in_use(self._context.slot):
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
        facts = [RangeFacts.from_json(one.facts) for one in self._staged.look()]
        there = {(one.range.request, one.range.number) for one in facts}
        names = {(each.wanted.request, each.wanted.number) for each in waiting}
        mine = [one.reached for one in facts if (one.range.request, one.range.number) in names]
        self._reached = max(mine, default=0)
        gone = [each for each in waiting if (each.wanted.request, each.wanted.number) not in there]
        if not gone:
            return
        discarded = self._discarded()
        self._moved_at = time.monotonic()
        for each in gone:
            reason = discarded.get((each.wanted.request, each.wanted.number))
            seconds = time.monotonic() - each.began
            each.report = RangeReport(each.key, each.rows, reason is None, reason or "", seconds)
            if self._callbacks.on_range is not None:
                self._callbacks.on_range(each.report)
        self._tell(now=True)

    @property
    def _waiting(self) -> list[_Range]:
        return [each for each in self._ranges if each.is_staged and each.report is None]

    def _discarded(self) -> dict[tuple[str, int], str]:
        from cdc_core.lake import ProgressLog
        from cdc_core.snapshot import LakeProgress

        text = ProgressLog(self._context.lake.paths.incremental, 0).read()
        return {(one.request, one.number): one.reason for one in LakeProgress.from_json(text).discarded}

    def _note_read(self, each: _Range) -> CdcError | None:
        """Take note of a reading that has ended; returns the error because of which the job ends."""
        assert each.reading is not None
        reading, each.reading = each.reading, None
        try:
            found = reading.result()
        except LockedError as error:
            if self._tried(each, error, _LOCKED_TRIES) is not None:
                self.locked[each.key.table] = error
            return None
        except TransientError as error:
            return self._tried(each, error)
        except CdcError as error:
            return error
        if found.ended is not None:
            return _unreadable(each.key.table, found.ended)
        if found.is_altered:
            return self._tried(each, TransientError(f"{each.key.table} was altered while it was read.", "Try again."))
        each.is_staged, each.rows = True, found.rows
        self._read_at[each.key.table] = time.monotonic()
        self._moved_at = time.monotonic()
        return None

    def _tried(self, each: _Range, error: CdcError, most: int = _TRIES) -> CdcError | None:
        each.tries += 1
        if each.tries >= most:
            return error
        _log.warning("Range %s is read again: %s", each.key.name, error)
        each.retry_at = time.monotonic() + _RETRY_SECONDS
        return None

    def _unwritten(self, each: _Range) -> RangeReport:
        reason = (
            "it is staged, and is written by the run that streams as soon as the table's lake has passed its position"
            if each.is_staged
            else "it was not read"
        )
        return RangeReport(each.key, each.rows, False, reason, time.monotonic() - each.began)

    def _tell(self, *, now: bool = False) -> None:
        """Tell the progress of each table, about once a second."""
        told = self._callbacks.on_progress
        if told is None or (not now and time.monotonic() - self._told_at < _TELL_SECONDS):
            return
        self._told_at = time.monotonic()
        for table in dict.fromkeys(each.key.table for each in self._ranges):
            told(self._progress(table))

    def _progress(self, table: TableId) -> IncrementalProgress:
        ranges = [each for each in self._ranges if each.key.table == table]
        expected = [each.key.rows for each in ranges]
        is_read = all(each.is_staged for each in ranges)
        until = self._read_at.get(table, self._began) if is_read else time.monotonic()
        return IncrementalProgress(
            table,
            sum(each.rows for each in ranges),
            sum(each.is_staged for each in ranges),
            sum(each.report is not None and each.report.is_applied for each in ranges),
            len(ranges),
            until - self._began,
            None if None in expected else sum(rows or 0 for rows in expected),
        )
