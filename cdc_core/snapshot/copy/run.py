"""Snapshots into the lake: one exported snapshot, tables divided into ranges, small tables combined, one task each.

    open_snapshot ─▶ facts of all tables recorded ─▶ COPY of ranges in tasks, several in parallel
                                                     └─▶ one commit per table when all of its ranges are read

After a crash some tables are committed and the others are unchanged: these are read again under a later snapshot, and
the record of what each snapshot shows lets the stream continue exactly for both (docs/decisions/0003).
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from cdc_core import failpoints
from cdc_core.errors import CdcError, LockedError, NotUtf8Error, TransientError
from cdc_core.lake.apply.kept_rows import KeptRows
from cdc_core.lake.delete_columns import COLUMNS
from cdc_core.lake.delete_modes import DeleteMode, DeleteModes
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import epoch_of
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import lake_position
from cdc_core.lake.reduce.row_states import Truncation
from cdc_core.lake.rows.row_keys import check_key, merge_key
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.schema.features import FeaturePolicy
from cdc_core.lake.schema.shape import lake_properties
from cdc_core.lake.spark.register import register
from cdc_core.lake.stores.schema_log import Shape, ShapeLog
from cdc_core.lake.stores.snapshot_events import complete_reads
from cdc_core.lake.stores.snapshot_log import TakenSnapshot, record_snapshots, tokens_before
from cdc_core.lake.write.replace import commit_snapshot, prepare
from cdc_core.lsn import Lsn
from cdc_core.postgres.catalog.tables import TableSize
from cdc_core.postgres.connect import connection_string
from cdc_core.postgres.source import OpenSnapshot, Source
from cdc_core.schema.changes import LakeFeatures
from cdc_core.schema.fingerprint import Fingerprint
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.schema.unseen import streamed
from cdc_core.snapshot.copy.key_ranges import key_column, key_conditions
from cdc_core.snapshot.copy.plan import ALONE, expected_rows, plan_chunks, plan_leaves, rows_per_range
from cdc_core.snapshot.copy.range_tracker import RangeTracker
from cdc_core.snapshot.copy.reading import Reading, read_ranges
from cdc_core.snapshot.copy.table_results import TableResults
from cdc_core.snapshot.copy.task import CopyRanges
from cdc_core.snapshot.options import SnapshotLockingMode, SnapshotOptions
from cdc_core.snapshot.reports import SnapshotProgress, SnapshotReport
from cdc_core.snapshot.unsent import OLDER_SECONDS, UnsentChanges, published_as
from cdc_core.spark.errors import received
from cdc_core.spark.run_tasks import parallelism

# Attempts to read a table that is altered while it is read.
_TRIES = 5
_OPENINGS, _COMMITS = 8, 4
# The first server version with TID range scans: an older one reads the entire table for each range.
_TID_RANGES = 140_000

OnProgress = Callable[[SnapshotProgress], None]


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """Ranges of at most ``rows_per_range`` rows, ``threads`` at a time, 0 for the number of Spark's task slots.

    ``scope`` is that of the tables' positions (``lake/epochs``). ``reads``: wal2lake.changelog.reads.
    ``keeps_dropped``: if a delete mode keeps rows, columns dropped in the source stay. ``database``:
    wal2lake.lake.catalog.database.
    """

    options: SnapshotOptions
    rows_per_range: int
    threads: int
    scope: str
    reads: bool = False
    history_minutes: int = 0
    features: FeaturePolicy = field(default_factory=FeaturePolicy)
    modes: DeleteModes = field(default_factory=DeleteModes)
    keeps_dropped: bool = True
    database: str = ""

    @property
    def has_features(self) -> bool:
        """Whether tables are to have Delta features from the start."""
        features = self.features
        has_layout = bool(features.clustered) or features.commit_timestamps
        return has_layout or features.features is LakeFeatures.MODERN


class SnapshotRun:
    """Reads tables into the lake under one snapshot."""

    def __init__(
        self, source: Source, spark: Any, paths: LakePaths, plan: TypingPlan, settings: SnapshotSettings
    ) -> None:
        self._source = source
        self._spark = spark
        self._paths = paths
        self._plan = plan
        self._settings = settings
        self._lock = threading.Lock()
        self._paused: set[TableId] = set()
        self.refused: dict[TableId, CdcError] = {}
        self._tokens = tokens_before(paths.snapshots, epoch_of(settings.scope))

    def take(self, tables: Sequence[TableSchema], on_progress: OnProgress | None = None) -> list[SnapshotReport]:
        """Replace each table's lake content by the source's rows at one point in time; in the given order.

        Tables with values that are not UTF-8 are left as they were (``refused``). A table that another session has
        locked is tried again after the others. Raises the errors of the server, a
        type or the lake; tables committed before that stay, and are complete.
        """
        if not tables:
            return []
        time.sleep(self._settings.options.snapshot_delay_ms / 1000)
        done: dict[TableId, SnapshotReport] = {}
        left, locked = tables, list[CdcError]()
        for _ in range(_TRIES):
            results = TableResults(raises=True, kept=(NotUtf8Error, LockedError))
            taken = self._take(left, self._source.open_snapshot(), {}, on_progress, results=results)
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
            UnsentChanges(self._paths, self._settings.scope).require(self._source, again, OLDER_SECONDS)
        raise locked[0] if locked else _changed(left[0].id)

    def reread(self, table: TableSchema, merged: Lsn | None, shape: int) -> SnapshotReport:
        """Replace one table's lake content while the stream continues; ``merged`` is the LSN up to which it is merged.

        ``shape`` is the number of the new shape. Changes up to ``merged`` need not be checked again: the snapshot
        contains their result, once every transaction of that time has ended. Raises TransientError if the table was
        altered meanwhile: then the lake is unchanged.
        """
        floor = merged if self._source.await_older_transactions() else None
        opened = self._source.open_concurrent_snapshot()
        (report,) = self._take([table], opened, {table.id: floor}, None, {table.id: shape})
        if report is None:
            raise _changed(table.id)
        return report

    def take_together(
        self, tables: Sequence[TableSchema], merged: Mapping[TableId, Lsn | None], shapes: Mapping[TableId, int]
    ) -> dict[TableId, SnapshotReport | CdcError]:
        """``reread`` for several tables at one point in time; those that were altered meanwhile are left out.

        The error of a table that cannot be read is its result, and the others are read. Tables that were committed
        before an error that concerns all of them have their reports, too. Raises TransientError.
        """
        floors = merged if self._source.await_older_transactions() else {}
        results = TableResults(raises=False)
        try:
            opened = self._source.open_concurrent_snapshot()
            self._take(tables, opened, floors, results.listen, shapes, results)
        except CdcError as error:
            results.note_all(tables, error)
        return results.final

    def _take(
        self,
        tables: Sequence[TableSchema],
        opened: OpenSnapshot,
        floors: Mapping[TableId, Lsn | None],
        on_progress: OnProgress | None,
        numbers: Mapping[TableId, int] | None = None,
        results: TableResults | None = None,
    ) -> list[SnapshotReport | None]:
        """Return one report per table, None for a table that was changed since it was described.

        ``results`` takes the errors of single tables; without it they are raised.
        """
        results = TableResults(raises=True) if results is None else results
        try:
            if self._settings.options.snapshot_locking_mode is SnapshotLockingMode.SHARED:
                opened.holder.lock([table.id for table in tables], self._settings.options.snapshot_lock_timeout_ms)
            with ThreadPoolExecutor(_OPENINGS) as pool:
                made = pool.map(lambda t: results.attempt(t.id, lambda: self._prepared(t, opened, floors)), tables)
                readings = [reading for reading in made if reading is not None]
            if not readings:
                return [None for _ in tables]
            is_concurrent = numbers is not None
            self._measure(readings)
            tracker = None if is_concurrent or self._settings.reads or self._settings.has_features else self._tracker()
            if tracker is not None:
                tracker.open(readings, opened)
            taken = {reading.table.id: reading.taken for reading in readings}
            record_snapshots(self._paths.snapshots, taken, epoch_of(self._settings.scope))
            shapes = self._new_shapes([reading.table for reading in readings], opened.lsn, numbers)
            for reading in readings:
                reading.shape = shapes[reading.table.id]
            parallel_jobs = self._parallel_jobs(concurrent=is_concurrent)
            self._plan_ranges(readings, parallel_jobs, tracker)
            reports = self._read(
                readings, opened, parallel_jobs, on_progress, tracker, results, concurrent=is_concurrent
            )
            return [reports.get(table.id) for table in tables]
        finally:
            opened.close()

    def _parallel_jobs(self, *, concurrent: bool) -> int:
        """Return the number of ranges read in parallel.

        ``concurrent``: with rounds running, one fewer than Spark has cores, so that their tasks are scheduled too.
        """
        room = parallelism(self._spark)
        parallel_jobs = max(self._settings.threads or room, self._settings.options.snapshot_max_threads)
        return max(1, min(parallel_jobs, room - 1)) if concurrent else parallel_jobs

    def _prepared(self, table: TableSchema, opened: OpenSnapshot, floors: Mapping[TableId, Lsn | None]) -> Reading:
        """Return the table's lake table, created if it does not exist, and the snapshot's token for its commit.

        The token is its LSN, or one more than the last token if the server's WAL has not advanced. No table has one
        token in two epochs.
        """
        mode = self._settings.modes.of(table.id)
        check_key(table, mode)
        typer = self._plan.typer(table)
        schema = pa.schema([*typer.read_schema, *COLUMNS[mode]])
        lake = prepare(self._paths.lake(table.id), schema, table.id, self._settings.history_minutes)
        in_force = lake_position(lake, self._settings.scope, table.id).token
        token = max(int(opened.lsn), (in_force or 0) + 1)
        while token in self._tokens.get(table.id, ()):
            token += 1
        taken = TakenSnapshot(token, opened.lsn, opened.holder.facts.visible, floors.get(table.id))
        own = self._settings.options.statement_of(str(table.id))
        wanted = self._source.catalog.row_filter(table) if own is None else ""
        reading = Reading(table, typer.read_columns, lake, schema, taken, in_force, own, wanted)
        reading.keeps_gone_rows = mode is not DeleteMode.HARD
        return reading

    def _tracker(self) -> RangeTracker:
        minutes, epoch = self._settings.history_minutes, epoch_of(self._settings.scope)
        return RangeTracker(self._source, self._spark, self._paths, self._plan, minutes, epoch)

    def _measure(self, readings: Sequence[Reading]) -> None:
        """Set the tables' sizes from the catalogue, and whether ranges of pages can be read."""
        sizes = self._source.catalog.sizes([reading.table for reading in readings])
        for reading in readings:
            size = sizes.get(reading.table.id, TableSize(0, None))
            reading.pages, reading.estimate = size.pages, size.rows
            reading.has_ctid = size.has_ctid and self._source.server_version >= _TID_RANGES

    def _plan_ranges(self, readings: Sequence[Reading], parallel_jobs: int, tracker: RangeTracker | None) -> None:
        """Set one SELECT per range: of pages, or of keys if page ranges cannot be read; one for a user's statement.

        A partitioned table whose leaves may be read by their names has the leaves' ranges.
        """
        for reading in readings:
            self._find_leaves(reading)
        guesses = [_guess(reading) for reading in readings]
        most = rows_per_range(guesses, self._settings.rows_per_range, parallel_jobs)
        for reading, guess in zip(readings, guesses, strict=True):
            if reading.leaves:
                self._plan_leaves(reading, most)
            elif reading.own_statement is not None:
                reading.selects = [reading.query()]
            elif not reading.has_ctid:
                reading.selects = [reading.query(condition) for condition in self._key_conditions(reading, guess, most)]
            elif tracker is not None and reading.marks is not None:
                noted = tracker.plan(reading, most)
                reading.chunks = {number: chunk for number, chunk in enumerate(noted) if chunk is not None}
            else:
                chunks = plan_chunks(reading.table.id, reading.pages, reading.estimate, most)
                reading.selects = [reading.query(chunk.predicate()) for chunk in chunks]
            count = len(reading.selects)
            reading.weights = [guess if count == 1 else max(guess // count, ALONE)] * count

    def _key_conditions(self, reading: Reading, rows: int, most: int) -> list[str]:
        """Return the key ranges of a table whose page ranges cannot be read; a single one if its key is unsuitable."""
        column = key_column(reading.table) if rows > most else None
        bounds = self._source.catalog.key_bounds(reading.table, column) if column is not None else None
        return [""] if column is None or bounds is None else key_conditions(column, bounds, rows, most)

    def _find_leaves(self, reading: Reading) -> None:
        """Set the partitions that are read by their own names, and their estimated number of rows."""
        if reading.own_statement is not None:
            return
        leaves = self._source.catalog.leaves(reading.table, is_filtered=bool(reading.row_filter))
        if self._source.server_version < _TID_RANGES:
            leaves = tuple(dataclasses.replace(leaf, has_ctid=False) for leaf in leaves)
        reading.leaves = leaves
        counts = [leaf.rows for leaf in leaves if leaf.rows is not None]
        # Only a manual ANALYZE counts the rows of a partitioned table; autovacuum counts those of its leaves.
        if leaves and len(counts) == len(leaves):
            reading.estimate = sum(counts)

    @staticmethod
    def _plan_leaves(reading: Reading, rows_per_range: int) -> None:
        ranges = plan_leaves(reading.leaves, rows_per_range)
        if len(ranges) == 1:
            reading.leaves, reading.selects = (), [reading.query()]
        else:
            reading.selects = [reading.query_leaves(chunks) for chunks in ranges]

    def _read(
        self,
        readings: Sequence[Reading],
        opened: OpenSnapshot,
        parallel_jobs: int,
        on_progress: OnProgress | None,
        tracker: RangeTracker | None,
        table_results: TableResults,
        *,
        concurrent: bool,
    ) -> dict[TableId, SnapshotReport]:
        """Read and commit all tables; a table that was changed since it was described has no report."""
        facts = opened.holder.facts
        target = connection_string(self._source.options)
        lsn, wait, armed = int(opened.lsn), self._settings.options.snapshot_lock_timeout_ms, failpoints.armed()
        work = CopyRanges(self._plan, target, facts.name, lsn, facts.timestamp_us, wait, armed)
        by_table = {reading.table.id: reading for reading in readings}

        def started(reading: Reading) -> None:
            opened.holder.check()
            self._report_progress(on_progress, reading)

        def finish(whole: Sequence[Reading]) -> list[SnapshotReport]:
            good = [each for each in self._as_described(whole) if each.table.id not in table_results]
            for reading in whole:
                if reading not in good:
                    reading.lake.discard(reading.files)

            def commit(reading: Reading) -> SnapshotReport:
                return self._commit(reading, opened, on_progress, tracker, concurrent=concurrent)

            made = (table_results.attempt(each.table.id, partial(commit, each)) for each in good)
            return [report for report in made if report is not None]

        ending: list[Future[list[SnapshotReport]]] = []
        with (
            ThreadPoolExecutor(_COMMITS) as committing,
            closing(read_ranges(self._spark, readings, work, parallel_jobs, started)) as coming,
        ):
            for results in coming:
                touched = [by_table[result.table] for result in results]
                for reading, result in zip(touched, results, strict=True):
                    if result.error is not None and self._as_described([reading]):
                        table_results.note(reading.table.id, result.error)
                    reading.results[result.number] = result
                    if tracker is not None and result.error is None:
                        tracker.note(reading, result.number)
                    self._report_progress(on_progress, reading)
                whole = [reading for reading in _distinct(touched) if reading.is_whole]
                if whole:
                    ending.append(committing.submit(finish, whole))
                for each in ending:
                    if each.done():
                        each.result()
            return {report.table: report for each in ending for report in each.result()}

    def _new_shapes(
        self, tables: Sequence[TableSchema], lsn: Lsn, given: Mapping[TableId, int] | None
    ) -> dict[TableId, int]:
        """Record the shapes of the snapshot; its commits put them in force."""
        log = ShapeLog(self._paths.shapes, lake_properties(self._settings.history_minutes))
        known = log.read()
        self._paused = {table for table, history in known.items() if history.paused is not None}
        numbers = {t.id: max(known[t.id].shapes, default=0) + 1 if t.id in known else 1 for t in tables}
        numbers |= given or {}
        log.add_shapes([(table.id, Shape(numbers[table.id], table)) for table in tables], lsn)
        return numbers

    def _resume(self, table: TableId, lsn: Lsn) -> None:
        """Resume a paused table after it was read."""
        with self._lock:
            log = ShapeLog(self._paths.shapes, lake_properties(self._settings.history_minutes))
            history = log.read().get(table)
            if history is not None and history.paused is not None:
                log.resume(table, lsn)

    def _commit(
        self,
        reading: Reading,
        opened: OpenSnapshot,
        on_progress: OnProgress | None,
        tracker: RangeTracker | None,
        *,
        concurrent: bool,
    ) -> SnapshotReport:
        """Commit the rows that were read of a table."""
        table, lsn = reading.table.id, reading.taken.lsn
        self._complete_reads(table)
        failpoints.hit(failpoints.BEFORE_SNAPSHOT_COMMIT)
        files = reading.files if tracker is None else tracker.files(reading)
        written = commit_snapshot(
            reading.lake,
            files,
            reading.schema,
            self._settings.scope,
            table,
            token=reading.taken.token,
            shape=reading.shape,
            facts={"lsn": str(lsn)},
            spark=self._spark,
            kept=self._kept(reading.table, opened),
        )
        failpoints.hit(failpoints.AFTER_SNAPSHOT_COMMIT)
        self._enable_features(reading.lake, reading.table)
        # With rounds running, the table may have been paused meanwhile.
        if concurrent or table in self._paused:
            self._resume(table, lsn)
        self._complete_reads(table)
        if tracker is not None:
            tracker.done(reading)
        seconds = time.monotonic() - (reading.started or time.monotonic())
        report = SnapshotReport(table, written.rows, Lsn(lsn), seconds, written.version, rows_kept=reading.rows_kept)
        self._report_progress(on_progress, reading, report)
        return report

    def _kept(self, table: TableSchema, opened: OpenSnapshot) -> KeptRows:
        """Return the key and position by which rows are kept that the snapshot does not show."""
        taken = Truncation(
            int(opened.lsn), -1, pa.scalar(opened.holder.facts.timestamp_us, pa.timestamp("us", tz="UTC"))
        )
        settings = self._settings
        return KeptRows(merge_key(table), taken, settings.features.rewrite_max_bytes, settings.keeps_dropped)

    def _enable_features(self, lake: DeltaTable, table: TableSchema) -> None:
        """Enable the features that tables are to have from the start."""
        lake.refresh()
        features = self._settings.features
        # A table that is clustered already may have another key now.
        if features.missing(lake, table) or features.cluster_by(lake, table):
            from cdc_core.lake.spark.commit import enable_missing

            enable_missing(self._spark, lake, features, table)
        if self._settings.database:
            with received(f"registering {table.id} in Spark's catalogue"):
                register(self._spark, self._settings.database, table.id, lake.path)

    def _as_described(self, readings: Sequence[Reading]) -> list[Reading]:
        """Return the readings whose table was not changed by DDL since its description, before the snapshot.

        COPY uses the catalogue at its own start: a column renamed meanwhile would have another column's values, and
        rows that ALTER TABLE rewrote are not visible to an older snapshot at all.
        """
        marks = self._source.catalog.fingerprints([reading.table.oid for reading in readings])
        return [
            reading
            for reading in readings
            if _is_as_described(reading.table, marks.get(reading.table.oid)) and self._has_its_leaves(reading)
        ]

    def _has_its_leaves(self, reading: Reading) -> bool:
        """Whether the leaves that are read still have the same names: the table's fingerprint does not include them."""
        if not reading.leaves:
            return True
        now = self._source.catalog.leaves(reading.table, is_filtered=bool(reading.row_filter))
        return [leaf.identity for leaf in now] == [leaf.identity for leaf in reading.leaves]

    def _complete_reads(self, table: TableId) -> None:
        """Append the rows of the snapshot in force to the changelog: this one, or a former one to be replaced."""
        if self._settings.reads:
            scope, minutes = self._settings.scope, self._settings.history_minutes
            complete_reads(self._paths.lake(table), self._paths.changelog(table), scope, table, minutes)

    def _report_progress(self, hook: OnProgress | None, reading: Reading, report: SnapshotReport | None = None) -> None:
        if hook is not None:
            rows, done = (reading.rows, False) if report is None else (report.rows, True)
            with self._lock:
                hook(SnapshotProgress(reading.table.id, rows, reading.estimate, done, *reading.ranges, report))


def _guess(reading: Reading) -> int:
    """Return the estimated number of rows of a table."""
    if reading.leaves:
        return sum(expected_rows(leaf.pages, leaf.rows) for leaf in reading.leaves)
    return expected_rows(reading.pages, reading.estimate)


def _distinct(readings: Sequence[Reading]) -> list[Reading]:
    return list({reading.table.id: reading for reading in readings}.values())


def _is_as_described(table: TableSchema, now: Fingerprint | None) -> bool:
    return table.fingerprint is None or (now is not None and table.fingerprint.is_unaltered(now))


def _changed(table: TableId) -> TransientError:
    return TransientError(
        f"The columns or other properties of {table} were changed while it was read.",
        "Read it again while it is not being altered.",
    )
