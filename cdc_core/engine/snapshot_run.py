"""Snapshots into the lake: one exported snapshot, every table cut into ranges, every range a Spark task.

    open_snapshot ─▶ facts of all tables written down ─▶ table by table: COPY ranges in tasks ─▶ one commit a table

A crash leaves some tables committed and the others as they were: they are read again under a later snapshot, and the
record of what each snapshot shows makes the stream go on exactly for both (docs/decisions/0003).
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from cdc_core import failpoints
from cdc_core.engine.copy_task import CopyIntoFiles, ReadCopy
from cdc_core.engine.reports import SnapshotProgress, SnapshotReport
from cdc_core.engine.shapes import streamed
from cdc_core.engine.source import OpenSnapshot, Source
from cdc_core.engine.typing_plan import TypingPlan
from cdc_core.errors import CdcError, TransientError
from cdc_core.lsn import Lsn
from cdc_core.postgres.connect import connection_string
from cdc_core.postgres.copy_out import own_rows_sql
from cdc_core.schema.fingerprint import Fingerprint
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.sink.delta.features import FeaturePolicy, announce
from cdc_core.sink.delta.paths import LakePaths
from cdc_core.sink.delta.positions import lake_position
from cdc_core.sink.delta.reads import complete_reads
from cdc_core.sink.delta.replace import commit_snapshot, prepare
from cdc_core.sink.delta.shape import lake_properties
from cdc_core.sink.delta.shape_log import Shape, ShapeLog
from cdc_core.sink.delta.snapshot_log import TakenSnapshot, record_snapshots
from cdc_core.sink.delta.table import DataFile, DeltaTable
from cdc_core.snapshot.options import SnapshotLockingMode, SnapshotOptions
from cdc_core.snapshot.plan import plan_chunks
from cdc_core.spark.run_tasks import parallelism, run_tasks

# How often a table is read that is altered while it is read.
_TRIES = 5

OnProgress = Callable[[SnapshotProgress], None]


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """Ranges of about ``rows_per_range`` rows, ``threads`` tables at a time. ``reads``: wal2lake.changelog.reads."""

    options: SnapshotOptions
    rows_per_range: int
    threads: int
    reads: bool = False
    history_minutes: int = 0
    features: FeaturePolicy = field(default_factory=FeaturePolicy)


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

    def take(self, tables: Sequence[TableSchema], on_progress: OnProgress | None = None) -> list[SnapshotReport]:
        """Replace each table's lake content by the source's rows at one point; in the order given.

        Raises what the server, a type or the lake raises; tables committed by then stay, and are whole.
        """
        if not tables:
            return []
        time.sleep(self._settings.options.snapshot_delay_ms / 1000)
        done: dict[TableId, SnapshotReport] = {}
        left = tables
        for _ in range(_TRIES):
            taken = self._take(left, self._source.open_snapshot(), None, on_progress)
            done |= {report.table: report for report in taken if report is not None}
            left = [table for table in tables if table.id not in done]
            if not left:
                return [done[table.id] for table in tables]
            now = {
                table.id: streamed(table) for table in self._source.catalog.tables({t.id for t in left}.__contains__)
            }
            left = [now.get(table.id, table) for table in left]
        raise _changed(left[0].id)

    def take_again(self, table: TableSchema, merged: Lsn | None, shape: int) -> SnapshotReport:
        """Replace one table's lake content while the stream goes on; ``merged`` is the LSN that the lake has reached.

        ``shape`` is the number for the shape that it brings. Changes up to ``merged`` need not be looked at again: what
        they did is in the snapshot, once every transaction of their time has ended. Raises TransientError where the
        table was altered meanwhile: the lake stays as it was then.
        """
        floor = merged if self._source.outlive_older_transactions() else None
        (report,) = self._take([table], self._source.open_snapshot_beside(), floor, None, shape)
        if report is None:
            raise _changed(table.id)
        return report

    def _take(
        self,
        tables: Sequence[TableSchema],
        opened: OpenSnapshot,
        floor: Lsn | None,
        on_progress: OnProgress | None,
        shape: int | None = None,
    ) -> list[SnapshotReport | None]:
        """A report a table, None for one that was changed since it was described."""
        try:
            if self._settings.options.snapshot_locking_mode is SnapshotLockingMode.SHARED:
                opened.holder.lock([table.id for table in tables], self._settings.options.snapshot_lock_timeout_ms)
            taken = {table.id: self._token(table.id, opened, floor) for table in tables}
            record_snapshots(self._paths.snapshots, taken)
            shapes = self._new_shapes(tables, opened.lsn, shape)
            sizes = self._source.catalog.sizes(tables)

            def one(table: TableSchema) -> SnapshotReport | None:
                size = sizes.get(table.id)
                pages, rows = (size.pages, size.rows) if size else (0, None)
                self._tell(on_progress, table.id, 0, rows, done=False)
                is_beside = shape is not None
                report = self._table(table, opened, taken[table.id], shapes[table.id], pages, rows, beside=is_beside)
                if report is not None:
                    self._tell(on_progress, table.id, report.rows, rows, done=True)
                return report

            threads = max(self._settings.threads, self._settings.options.snapshot_max_threads)
            with ThreadPoolExecutor(min(threads, len(tables))) as pool:
                futures = [pool.submit(one, table) for table in tables]
                try:
                    return [future.result() for future in futures]
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
        finally:
            opened.close()

    def _new_shapes(self, tables: Sequence[TableSchema], lsn: Lsn, shape: int | None) -> dict[TableId, int]:
        """Write down the shapes that the snapshot brings; they come into force with its commits."""
        log = ShapeLog(self._paths.shapes, lake_properties(self._settings.history_minutes))
        known = log.read()
        numbers = {t.id: max(known[t.id].shapes, default=0) + 1 if t.id in known else 1 for t in tables}
        if shape is not None:
            numbers = {table.id: shape for table in tables}
        log.add_shapes([(table.id, Shape(numbers[table.id], table)) for table in tables], lsn)
        return numbers

    def _resume(self, table: TableId, lsn: Lsn) -> None:
        """A table that was paused goes on: it was read now."""
        with self._lock:
            log = ShapeLog(self._paths.shapes, lake_properties(self._settings.history_minutes))
            history = log.read().get(table)
            if history is not None and history.paused is not None:
                log.resume(table, lsn)

    def _token(self, table: TableId, opened: OpenSnapshot, floor: Lsn | None) -> TakenSnapshot:
        """The snapshot's mark in the table's commit: its LSN, or one more where the server's WAL has not moved."""
        lake = DeltaTable.open(self._paths.lake(table))
        in_force = lake_position(lake, self._source.options.slot_name, table).token
        token = max(int(opened.lsn), (in_force or 0) + 1)
        return TakenSnapshot(token, opened.lsn, opened.holder.facts.visible, floor)

    def _table(
        self,
        table: TableSchema,
        opened: OpenSnapshot,
        taken: TakenSnapshot,
        shape: int,
        pages: int,
        rows: int | None,
        *,
        beside: bool,
    ) -> SnapshotReport | None:
        started = time.monotonic()
        facts = opened.holder.facts
        opened.holder.check()
        read = ReadCopy(
            self._plan,
            table,
            connection_string(self._source.options),
            facts.name,
            int(opened.lsn),
            facts.timestamp_us,
        )
        schema = self._plan.typer(table).read_schema
        lake = prepare(self._paths.lake(table.id), schema, table.id, self._settings.history_minutes)
        selects = self._selects(table, pages, rows)
        try:
            copied = self._copy(selects, CopyIntoFiles(read, lake.path, schema), table.id, beside=beside)
        except CdcError:
            if self._is_as_described(table):
                raise
            return None
        if not self._is_as_described(table):
            return None
        self._complete_reads(table.id)
        failpoints.hit(failpoints.BEFORE_SNAPSHOT_COMMIT)
        slot = self._source.options.slot_name
        files = [file for part in copied for file in part]
        facts_of_commit = {"lsn": str(opened.lsn)}
        written = commit_snapshot(
            lake,
            files,
            schema,
            slot,
            table.id,
            token=taken.token,
            shape=shape,
            facts=facts_of_commit,
            spark=self._spark,
        )
        failpoints.hit(failpoints.AFTER_SNAPSHOT_COMMIT)
        self._enable_features(lake, table.id)
        self._resume(table.id, opened.lsn)
        self._complete_reads(table.id)
        return SnapshotReport(table.id, written.rows, Lsn(opened.lsn), time.monotonic() - started, written.version)

    def _enable_features(self, lake: DeltaTable, table: TableId) -> None:
        """Let features come on that tables are to have from the start."""
        lake.refresh()
        missing = self._settings.features.missing(lake)
        if missing:
            from cdc_core.sink.delta.spark_commit import enable

            enable(self._spark, lake.path, missing)
            announce(str(table), missing)

    def _copy(
        self, selects: Sequence[str], work: CopyIntoFiles, table: TableId, *, beside: bool
    ) -> list[list[DataFile]]:
        """Every range's files. ``beside`` the rounds, one task fewer than Spark has room for, so that theirs get in."""
        most = max(1, parallelism(self._spark) - 1) if beside else len(selects)
        found: list[list[DataFile]] = []
        for start in range(0, len(selects), most):
            ranges = [[select] for select in selects[start : start + most]]
            found += run_tasks(self._spark, ranges, work, f"reading {table}")
        return found

    def _is_as_described(self, table: TableSchema) -> bool:
        """Whether no DDL touched the table since it was described, which was before the snapshot was opened.

        COPY reads by the catalogue of its own moment: a column renamed meanwhile would be another's values, and rows
        that ALTER TABLE rewrote are not seen by an older snapshot at all.
        """
        if table.fingerprint is None:
            return True
        marks = self._source.catalog.fingerprints([table.oid]).get(table.oid)
        return marks is not None and _comparable(marks) == _comparable(table.fingerprint)

    def _complete_reads(self, table: TableId) -> None:
        """Give the changelog the rows of the snapshot in force: this one, or a former one before it is replaced."""
        if self._settings.reads:
            slot = self._source.options.slot_name
            complete_reads(
                self._paths.lake(table), self._paths.changelog(table), slot, table, self._settings.history_minutes
            )

    def _selects(self, table: TableSchema, pages: int, rows: int | None) -> list[str]:
        """One SELECT a range; one in all for a table with a statement of the user's own."""
        names = [column.name for column in table.columns]
        own = self._settings.options.statement_of(str(table.id))
        if own is not None:
            return [f"{_named(names)} FROM ({own.strip().rstrip(';')}) AS own"]
        most = max(1, 4 * int(self._spark.sparkContext.defaultParallelism))
        chunks = plan_chunks(table.id, pages, rows, self._settings.rows_per_range, most)
        # What the filter leaves out comes in no event either, and would stay as it is now.
        wanted = self._source.catalog.row_filter(table)
        conditions = [[chunk.predicate(), f"({wanted})" if wanted else ""] for chunk in chunks]
        return [own_rows_sql(table, names, " AND ".join(filter(None, condition))) for condition in conditions]

    def _tell(self, hook: OnProgress | None, table: TableId, rows: int, estimate: int | None, *, done: bool) -> None:
        if hook is not None:
            with self._lock:
                hook(SnapshotProgress(table, rows, estimate, done))


def _comparable(marks: Fingerprint) -> Fingerprint:
    """The marks without what rows change: an empty partition fills."""
    storage = tuple(dataclasses.replace(mark, is_empty=False) for mark in marks.storage)
    return dataclasses.replace(marks, storage=storage)


def _changed(table: TableId) -> TransientError:
    return TransientError(
        f"The columns of {table}, or what else its description says, were changed while it was read.",
        "Read it again when nobody alters it.",
    )


def _named(names: list[str]) -> str:
    return "SELECT " + ", ".join('"' + name.replace('"', '""') + '"' for name in names)
