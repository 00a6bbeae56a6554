"""Commits the tables of a snapshot, each as soon as all of its ranges are read."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence

from cdc_core import failpoints
from cdc_core.lake import LakePaths, ReadTables, SchemaLog, SchemaVersion, TypingPlan, lake_properties
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot.copy.range_tracker import RangeTracker
from cdc_core.snapshot.copy.reading import TableRead
from cdc_core.snapshot.copy.settings import SnapshotSettings
from cdc_core.snapshot.reports import SnapshotReport
from cdc_core.spark import Session


def record_schema_versions(
    log: SchemaLog, plan: TypingPlan, tables: Sequence[TableSchema], lsn: Lsn, reserved: Mapping[TableId, int] | None
) -> tuple[dict[TableId, int], frozenset[TableId]]:
    """Record the schema versions of a snapshot, which its commits put in force; returns their numbers.

    Also returns the tables that are paused. ``reserved`` are numbers that were reserved.
    """
    known = log.read()
    numbers = {t.id: max(known[t.id].versions, default=0) + 1 if t.id in known else 1 for t in tables}
    numbers |= reserved or {}
    schema_versions = [SchemaVersion(numbers[table.id], table, treatments=plan.treatments(table)) for table in tables]
    log.add_versions([(schema_version.table.id, schema_version) for schema_version in schema_versions], lsn)
    return numbers, frozenset(table for table, history in known.items() if history.paused is not None)


class TableCommits:
    """The commits of one snapshot's tables; for any thread.

    ``taken_us`` is the snapshot's time (microseconds since 1970). ``paused`` are the tables that are paused: they are
    resumed after their commit. None: this is queried then, because a running stream may pause tables meanwhile.
    """

    def __init__(
        self,
        spark: Session,
        paths: LakePaths,
        settings: SnapshotSettings,
        tracker: RangeTracker | None,
        taken_us: int,
        paused: Collection[TableId] | None,
    ) -> None:
        self._paths = paths
        self._settings = settings
        self._tracker = tracker
        self._paused = paused
        self._lock = threading.Lock()
        self._tables = ReadTables(
            spark,
            paths,
            settings.scope,
            taken_us,
            settings.history_minutes,
            settings.reads,
            settings.keeps_dropped,
            settings.features,
            settings.database,
            settings.checks,
        )

    def commit(self, read: TableRead) -> SnapshotReport:
        """Replace the lake table's rows by those that were read. Raises LakeError or TransientError."""
        plan = read.plan
        table, lsn = plan.table.id, plan.taken.lsn
        self._tables.complete_events(table)
        failpoints.hit(failpoints.BEFORE_SNAPSHOT_COMMIT)
        parts = read.parts if self._tracker is None else self._tracker.parts(read)
        done = self._tables.replace(plan.description.target, plan.taken, plan.schema_version, parts)
        if self._paused is None or table in self._paused:
            self._resume(table, lsn)
        self._tables.complete_events(table)
        if self._tracker is not None:
            self._tracker.done(plan)
        kept = read.rows_kept
        return SnapshotReport(table, done.rows, lsn, read.seconds(), done.version, rows_kept=kept, refused=done.refused)

    def _resume(self, table: TableId, lsn: Lsn) -> None:
        """Resume a paused table after it was read."""
        with self._lock:
            log = SchemaLog(self._paths.schema_versions, lake_properties(self._settings.history_minutes))
            history = log.read().get(table)
            if history is not None and history.paused is not None:
                log.resume(table, lsn)
