"""Snapshots into the lake: one exported snapshot, tables divided into ranges, small tables combined, one task each.

    open_snapshot ─▶ description ─▶ facts of all tables recorded ─▶ plan ─▶ COPY of ranges in tasks, in parallel
                                                                            └─▶ one commit per table when it is whole

The state of a table is three values, one for each step: ``TableDescription`` (what it is), ``TablePlan`` (the
ranges to be read), ``TableRead`` (what has been read).

After a crash some tables are committed and the others are unchanged: these are read again under a later snapshot, and
the record of what each snapshot shows lets the stream continue exactly for both (docs/decisions/0003).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from functools import partial

from cdc_core import failpoints
from cdc_core.connector_threads import ConnectorThreadPool
from cdc_core.errors import (
    CdcError,
    LimitExceededError,
    LockedError,
    NotJudgedError,
    NotUtf8Error,
    SharedFolderError,
    TransientError,
    UnsendableRowError,
)
from cdc_core.lake import (
    LakePaths,
    SchemaLog,
    SnapshotLog,
    TakenSnapshot,
    TypingPlan,
    epoch_of,
    lake_properties,
)
from cdc_core.lsn import Lsn
from cdc_core.postgres import OpenSnapshot, Source, connection_string
from cdc_core.schema import TableId, TableSchema, streamed
from cdc_core.snapshot.copy.commit import TableCommits, record_schema_versions
from cdc_core.snapshot.copy.description import Describer, TableDescription
from cdc_core.snapshot.copy.range_tracker import RangeTracker
from cdc_core.snapshot.copy.reading import TableRead, read_ranges
from cdc_core.snapshot.copy.settings import SnapshotSettings
from cdc_core.snapshot.copy.table_plan import RangeLimits, TablePlan, plan_tables
from cdc_core.snapshot.copy.table_results import TableResults
from cdc_core.snapshot.copy.task import CopyRanges, RangeResult
from cdc_core.snapshot.copy.unaltered import unaltered
from cdc_core.snapshot.locks import lock_tables
from cdc_core.snapshot.reports import OnProgress, SnapshotProgress, SnapshotReport
from cdc_core.snapshot.unsent import UnsentChanges, published_as
from cdc_core.spark import Session, parallelism

# Attempts to read a table that is altered while it is read.
_TRIES = 5
_COMMITS = 4
# How long a snapshot that blocks the stream waits for open transactions.
_BLOCKING_SECONDS = 10.0
# Errors of one table, without which the others are read.
_OF_ONE_TABLE = (NotUtf8Error, UnsendableRowError, LockedError, SharedFolderError, NotJudgedError, LimitExceededError)


class SnapshotRun:
    """Reads tables into the lake under one snapshot."""

    def __init__(
        self, source: Source, spark: Session, paths: LakePaths, plan: TypingPlan, settings: SnapshotSettings
    ) -> None:
        self._source = source
        self._spark = spark
        self._paths = paths
        self._plan = plan
        self._settings = settings
        self._describer = Describer(source, paths, plan, settings)
        self._tokens = SnapshotLog(paths.snapshots, epoch_of(settings.scope)).former_tokens()
        self.refused: dict[TableId, CdcError] = {}

    def take(self, tables: Sequence[TableSchema], on_progress: OnProgress | None = None) -> list[SnapshotReport]:
        """Replace each table's lake content by the source's rows at one point in time; in the tables' order.

        Tables with rows that cannot be sent, or are not UTF-8, or whose folder is another table's, are left as they
        were (``refused``). A table that another session has locked is tried again after the others. Raises the errors
        of the server, a type or the lake; tables committed before that stay, and are complete.
        """
        if not tables:
            return []
        time.sleep(self._settings.options.snapshot_delay_ms / 1000)
        done: dict[TableId, SnapshotReport] = {}
        left, locked = tables, list[CdcError]()
        for _ in range(_TRIES):
            results = TableResults(raises=True, kept=_OF_ONE_TABLE)
            taken = self._take(left, self._source.open_snapshot(), {}, on_progress, results)
            locked = [error for error in results.errors.values() if isinstance(error, LockedError)]
            self.refused |= {name: error for name, error in results.errors.items() if error not in locked}
            done |= {report.table: report for report in taken if report is not None}
            left = [table for table in tables if table.id not in {**done, **self.refused}]
            if not left:
                return [done[table.id] for table in tables if table.id in done]
            named = {table.id for table in left}.__contains__
            now = {table.id: streamed(table) for table in self._source.catalog.tables(named)}
            before, left = left, [now.get(table.id, table) for table in left]
            again = [table for was, table in zip(before, left, strict=True) if published_as(was) != published_as(table)]
            UnsentChanges(self._paths, self._settings.scope).require(self._source, again)
        raise locked[0] if locked else _changed(left[0].id)

    def reread(
        self,
        tables: Sequence[TableSchema],
        merged: Mapping[TableId, Lsn | None],
        schema_versions: Mapping[TableId, int],
        on_progress: OnProgress,
    ) -> dict[TableId, CdcError]:
        """Replace the lake content of tables at one point in time while the stream continues.

        ``merged`` are the LSNs up to which they are merged, ``schema_versions`` the numbers of the new schema versions.
        Changes up to an LSN of ``merged`` need not be checked again: the snapshot contains their result, once every
        transaction of that time has ended. ``on_progress`` gets the report of each table as soon as it is committed.
        The lake tables of all others are unchanged, and their errors are returned: TransientError for one that was
        altered meanwhile. Raises an error that concerns all tables.
        """
        floors = merged if self._source.await_older_transactions() else {}
        results = TableResults(raises=False)
        opened = self._source.open_concurrent_snapshot()
        reports = self._take(tables, opened, floors, on_progress, results, schema_versions)
        left = [table.id for table, report in zip(tables, reports, strict=True) if report is None]
        return {table: results.errors.get(table) or _changed(table) for table in left}

    def take_together(
        self,
        tables: Sequence[TableSchema],
        merged: Mapping[TableId, Lsn | None],
        schema_versions: Mapping[TableId, int],
    ) -> dict[TableId, SnapshotReport | CdcError]:
        """As ``reread``, while the stream waits; tables that were altered meanwhile are left out.

        The error of a table that cannot be read is its result, and the others are read. Tables that were committed
        before an error that concerns all of them have their reports, too. Raises TransientError.
        """
        # The stream is not read meanwhile. Without floors the whole changelog is compared with the snapshot later.
        floors = merged if self._source.await_older_transactions(_BLOCKING_SECONDS) else {}
        results = TableResults(raises=False)
        try:
            opened = self._source.open_concurrent_snapshot()
            self._take(tables, opened, floors, results.listen, results, schema_versions)
        except CdcError as error:
            results.note_all(tables, error)
        return results.final

    def _take(
        self,
        tables: Sequence[TableSchema],
        opened: OpenSnapshot,
        floors: Mapping[TableId, Lsn | None],
        on_progress: OnProgress | None,
        results: TableResults,
        numbers: Mapping[TableId, int] | None = None,
    ) -> list[SnapshotReport | None]:
        """Return one report per table, None for one with an error in ``results`` or changed since it was described."""
        try:
            lock_tables(opened.holder, [table.id for table in tables], self._settings.options)
            described = self._describer.describe(tables, results)
            if not described:
                return [None for _ in tables]
            is_concurrent = numbers is not None
            tracker = None if is_concurrent or not self._settings.may_resume else self._tracker()
            taken = {description.table.id: self._taken(description, opened, floors) for description in described}
            earlier = {} if tracker is None else tracker.earlier(described, taken, opened)
            taken |= {name: attempts.continued(taken[name]) for name, attempts in earlier.items()}
            SnapshotLog(self._paths.snapshots, epoch_of(self._settings.scope)).add(taken)
            log = SchemaLog(self._paths.schema_versions, lake_properties(self._settings.history_minutes))
            schema_versions, paused = record_schema_versions(
                log, self._plan, [description.table for description in described], opened.lsn, numbers
            )
            limits = RangeLimits(self._settings.rows_per_range, self._parallel_jobs(concurrent=is_concurrent))
            plans = plan_tables(described, taken, schema_versions, earlier, limits, self._source.catalog.key_bounds)
            commits = TableCommits(
                self._spark,
                self._paths,
                self._settings,
                tracker,
                opened.holder.facts.timestamp_us,
                None if is_concurrent else paused,
            )
            reports = self._read(
                plans, opened, limits.parallel_jobs, commits, tracker, results, _ProgressHook(on_progress)
            )
            return [reports.get(table.id) for table in tables]
        finally:
            opened.close()

    def _parallel_jobs(self, *, concurrent: bool) -> int:
        """Return the number of ranges read in parallel.

        ``concurrent``: with rounds running, one fewer than Spark has cores, so that their tasks are scheduled too.
        """
        room = parallelism(self._spark)
        parallel_jobs = self._settings.options.parallel_ranges(self._settings.threads, room)
        return max(1, min(parallel_jobs, room - 1)) if concurrent else parallel_jobs

    def _taken(
        self, description: TableDescription, opened: OpenSnapshot, floors: Mapping[TableId, Lsn | None]
    ) -> TakenSnapshot:
        """Return the snapshot of one table.

        Its token is its LSN, or one more than the last token if the server's WAL has not advanced. No table has one
        token in two epochs.
        """
        name = description.table.id
        token = max(int(opened.lsn), (description.target.token or 0) + 1)
        while token in self._tokens.get(name, ()):
            token += 1
        return TakenSnapshot(token, opened.lsn, opened.holder.facts.visible, floors.get(name))

    def _tracker(self) -> RangeTracker:
        minutes, epoch = self._settings.history_minutes, epoch_of(self._settings.scope)
        return RangeTracker(self._source, self._spark, self._paths, self._plan, minutes, epoch)

    def _read(
        self,
        plans: Sequence[TablePlan],
        opened: OpenSnapshot,
        parallel_jobs: int,
        commits: TableCommits,
        tracker: RangeTracker | None,
        results: TableResults,
        progress: _ProgressHook,
    ) -> dict[TableId, SnapshotReport]:
        """Read and commit all tables; a table that was changed since it was described has no report."""
        reads = {plan.table.id: TableRead(plan) for plan in plans}

        def started(read: TableRead) -> None:
            opened.holder.check()
            progress.note(read)

        def commit(read: TableRead) -> SnapshotReport:
            report = commits.commit(read)
            progress.note(read, report)
            return report

        def finish(whole: Sequence[TableRead]) -> list[SnapshotReport]:
            good = self._good(whole, results)
            for read in whole:
                if read not in good:
                    read.plan.description.target.discard(read.parts)
            made = (results.attempt(read.table, partial(commit, read)) for read in good)
            return [report for report in made if report is not None]

        ending: list[Future[list[SnapshotReport]]] = []
        with (
            ConnectorThreadPool(_COMMITS) as committing,
            closing(
                read_ranges(self._spark, list(reads.values()), self._work(opened), parallel_jobs, started)
            ) as coming,
        ):
            for batch in coming:
                for result in batch:
                    self._note(reads[result.table], result, tracker, results)
                    progress.note(reads[result.table])
                touched = [reads[name] for name in dict.fromkeys(result.table for result in batch)]
                whole = [read for read in touched if read.is_whole]
                if whole:
                    ending.append(committing.submit(finish, whole))
                for future in ending:
                    if future.done():
                        future.result()
            return {report.table: report for future in ending for report in future.result()}

    def _work(self, opened: OpenSnapshot) -> CopyRanges:
        facts = opened.holder.facts
        target = connection_string(self._source.options)
        wait = self._settings.options.snapshot_lock_timeout_ms
        checks, armed = self._settings.checks, failpoints.armed()
        return CopyRanges(self._plan, target, facts.name, int(opened.lsn), facts.timestamp_us, wait, checks, armed)

    def _note(self, read: TableRead, result: RangeResult, tracker: RangeTracker | None, results: TableResults) -> None:
        """Add the result of a range to what has been read; an error of a table that was altered is not one."""
        if result.error is not None and unaltered(self._source.catalog, [read.plan]):
            results.note(read.table, result.error)
        read.results[result.number] = result
        # A range with refused rows is read again: they are in no file that its entry could name.
        if tracker is not None and result.error is None and not result.written.refused:
            tracker.note(read.plan, result)

    def _good(self, whole: Sequence[TableRead], results: TableResults) -> list[TableRead]:
        """Return the reads to be committed: those without an error, of tables that were not altered meanwhile."""
        as_described = unaltered(self._source.catalog, [read.plan for read in whole])
        return [read for read in whole if read.plan in as_described and read.table not in results]


class _ProgressHook:
    """Calls ``hook`` with the progress of tables, one call at a time; for any thread."""

    def __init__(self, hook: OnProgress | None) -> None:
        self._hook = hook
        self._lock = threading.Lock()

    def note(self, read: TableRead, report: SnapshotReport | None = None) -> None:
        """Report the progress of a table; ``report`` is set after its commit."""
        if self._hook is not None:
            rows, done = (read.rows, False) if report is None else (report.rows, True)
            estimate = read.plan.description.estimate
            with self._lock:
                self._hook(SnapshotProgress(read.table, rows, estimate, done, *read.ranges, report))


def _changed(table: TableId) -> TransientError:
    return TransientError(
        f"The columns or other properties of {table} were changed while it was read.",
        "Read it again while it is not being altered.",
    )
