"""Commits the tables of a snapshot, each as soon as all of its ranges are read."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from cdc_core import failpoints
from cdc_core.lake.apply.kept_rows import KeptRows
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.reduce.row_states import Truncation
from cdc_core.lake.rows.row_keys import merge_key
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.schema.features import announce, features_on
from cdc_core.lake.schema.lake_schema import lake_properties
from cdc_core.lake.spark.register import register
from cdc_core.lake.stores.quarantine import end_former, quarantine_reads
from cdc_core.lake.stores.schema_log import SchemaLog, SchemaVersion
from cdc_core.lake.stores.snapshot_events import complete_snapshot_events
from cdc_core.lake.write.refused_reads import Quarantining, discard, summed, told
from cdc_core.lake.write.replace import commit_snapshot
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.snapshot.copy.range_tracker import RangeTracker
from cdc_core.snapshot.copy.reading import TableRead
from cdc_core.snapshot.copy.settings import SnapshotSettings
from cdc_core.snapshot.reports import SnapshotReport
from cdc_core.spark import received

_log = logging.getLogger(__name__)


def record_schema_versions(
    log: SchemaLog, plan: TypingPlan, tables: Sequence[TableSchema], lsn: Lsn, given: Mapping[TableId, int] | None
) -> tuple[dict[TableId, int], frozenset[TableId]]:
    """Record the schema versions of a snapshot, which its commits put in force; returns their numbers.

    Also returns the tables that are paused. ``given`` are reserved numbers.
    """
    known = log.read()
    numbers = {t.id: max(known[t.id].versions, default=0) + 1 if t.id in known else 1 for t in tables}
    numbers |= given or {}
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
        spark: Any,
        paths: LakePaths,
        settings: SnapshotSettings,
        tracker: RangeTracker | None,
        taken_us: int,
        paused: Collection[TableId] | None,
    ) -> None:
        self._spark = spark
        self._paths = paths
        self._settings = settings
        self._tracker = tracker
        self._taken_us = taken_us
        self._paused = paused
        self._lock = threading.Lock()

    def commit(self, read: TableRead) -> SnapshotReport:
        """Replace the lake table's rows by those that were read. Raises LakeError or TransientError."""
        plan, settings = read.plan, self._settings
        table, lsn, lake = plan.table.id, plan.taken.lsn, plan.description.lake
        self._complete_events(table)
        failpoints.hit(failpoints.BEFORE_SNAPSHOT_COMMIT)
        files = read.files if self._tracker is None else self._tracker.files(read)
        refused = self._quarantine(read, sum(file.rows for file in files))
        written = commit_snapshot(
            lake,
            files,
            plan.description.schema,
            settings.scope,
            table,
            token=plan.taken.token,
            schema_version=plan.schema_version,
            facts={"lsn": str(lsn)},
            kept=self._kept(plan.table, lsn),
        )
        failpoints.hit(failpoints.AFTER_SNAPSHOT_COMMIT)
        end_former(self._paths.quarantine(table), plan.taken.token)
        discard(lake, read.refused)
        self._enable_features(lake, plan.table)
        if self._paused is None or table in self._paused:
            self._resume(table, lsn)
        self._complete_events(table)
        if self._tracker is not None:
            self._tracker.done(plan)
        kept = read.rows_kept
        return SnapshotReport(
            table, written.rows, lsn, read.seconds(), written.version, rows_kept=kept, refused=refused
        )

    def _quarantine(self, read: TableRead, passing: int) -> int:
        """Quarantine the rows that a rule refused, under the token of the snapshot; returns their number.

        Raises LimitExceededError, before anything is written.
        """
        settings, plan, files = self._settings, read.plan, read.refused
        refused = sum(file.rows for file in files)
        if not refused or settings.checks is None:
            return 0
        settings.checks.require_limits(plan.table.id, refused, refused + passing, refused)
        into = Quarantining(self._paths, settings.scope, plan.table, plan.schema_version, settings.history_minutes)
        parts = into.rows(file.read(plan.description.lake) for file in files)
        quarantine_reads(self._paths.quarantine(plan.table.id), parts, plan.taken.token)
        failpoints.hit(failpoints.AFTER_QUARANTINE)
        reasons = told(summed(file.reasons for file in files))
        _log.warning("%s: %s rows that were read are in quarantine (%s).", plan.table.id, f"{refused:,}", reasons)
        return refused

    def _complete_events(self, table: TableId) -> None:
        """Append the rows of the snapshot in force to the changelog: this one, or a former one to be replaced."""
        if self._settings.reads:
            scope, minutes = self._settings.scope, self._settings.history_minutes
            complete_snapshot_events(self._paths.lake(table), self._paths.changelog(table), scope, table, minutes)

    def _kept(self, table: TableSchema, lsn: Lsn) -> KeptRows:
        """Return the key and position by which rows are kept that the snapshot does not show."""
        taken = Truncation(int(lsn), -1, pa.scalar(self._taken_us, pa.timestamp("us", tz="UTC")))
        return KeptRows(merge_key(table), taken, self._settings.keeps_dropped)

    def _enable_features(self, lake: DeltaTable, table: TableSchema) -> None:
        """Enable the features that tables are to have from the start."""
        lake.refresh()
        before = features_on(lake)
        on_conflict(lambda: self._settings.features.enable_missing(lake, table), lake)
        announce(str(table.id), features_on(lake) - before)
        if self._settings.database:
            with received(f"registering {table.id} in Spark's catalogue"):
                register(self._spark, self._settings.database, table.id, lake.path)

    def _resume(self, table: TableId, lsn: Lsn) -> None:
        """Resume a paused table after it was read."""
        with self._lock:
            log = SchemaLog(self._paths.schema_versions, lake_properties(self._settings.history_minutes))
            history = log.read().get(table)
            if history is not None and history.paused is not None:
                log.resume(table, lsn)
