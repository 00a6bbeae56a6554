"""Makes the rows read from a table the content of its lake table: quarantine, one commit, features, changelog.

    events of the snapshot before ─▶ refused rows in quarantine ─▶ commit ─▶ features ─▶ events of this one

Each step may be repeated: a crash in between leaves the lake table as it was, or complete but for its features and
events, which the next run adds.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from cdc_core import failpoints
from cdc_core.described import names_in_spark
from cdc_core.lake.apply.next_content import KeptRows
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.reduce.row_states import Truncation
from cdc_core.lake.schema.features import FeaturePolicy, announce, features_on
from cdc_core.lake.spark.register import register
from cdc_core.lake.stores.quarantine import end_former, quarantine_reads
from cdc_core.lake.stores.schema_log import SchemaLog
from cdc_core.lake.stores.snapshot_events import complete_snapshot_events
from cdc_core.lake.stores.snapshot_log import TakenSnapshot
from cdc_core.lake.write.read_target import RangeFiles, ReadTarget
from cdc_core.lake.write.refused_reads import Quarantining, ReadChecks, discard, summed, told
from cdc_core.lake.write.replace import commit_snapshot
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId, TableSchema
from cdc_core.spark import Session, received

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplacedTable:
    """A table whose rows were replaced: the commit's version, and how many rows it has and how many were refused."""

    version: int
    rows: int
    refused: int


@dataclass(frozen=True, slots=True)
class ReadTables:
    """Writes the tables of one snapshot, taken at ``taken_us`` (microseconds since 1970); any thread may use it.

    ``scope`` is that of the tables' positions, ``reads``: the rows are also appended to the changelogs.
    ``keeps_dropped``: if a delete mode keeps rows, columns dropped in the source stay. ``database``: Spark's, in which
    tables are registered, "" for none. ``checks`` have the limits of refused rows, None if checks are disabled.
    """

    spark: Session
    paths: LakePaths
    scope: str
    taken_us: int
    history_minutes: int = 0
    reads: bool = False
    keeps_dropped: bool = True
    features: FeaturePolicy = field(default_factory=FeaturePolicy)
    database: str = ""
    checks: ReadChecks | None = None

    def complete_events(self, table: TableId) -> None:
        """Append the rows of the snapshot in force to the changelog: this one, or a former one to be replaced."""
        if self.reads:
            lake, changelog = self.paths.lake(table), self.paths.changelog(table)
            complete_snapshot_events(lake, changelog, self.scope, table, self.history_minutes)

    def replace(
        self, target: ReadTarget, taken: TakenSnapshot, schema_version: int, parts: Sequence[RangeFiles]
    ) -> ReplacedTable:
        """Replace the lake table's rows by those of the snapshot ``taken``, read in the schema version of that number.

        Raises LimitExceededError before anything is written, LakeError, TransientError.
        """
        table, lake = target.table, target.lake
        refused = self._quarantine(target, taken.token, schema_version, parts)
        written = commit_snapshot(
            lake,
            [file for part in parts for file in part.files],
            target.schema,
            self.scope,
            table.id,
            token=taken.token,
            schema_version=schema_version,
            facts={"lsn": str(taken.lsn)},
            kept=self._kept(table, taken.lsn),
        )
        failpoints.hit(failpoints.AFTER_SNAPSHOT_COMMIT)
        end_former(self.paths.quarantine(table.id), taken.token)
        discard(lake, [file for part in parts for file in part.refused])
        self._enable_features(lake, table)
        return ReplacedTable(written.version, written.rows, refused)

    def _quarantine(self, target: ReadTarget, token: int, schema_version: int, parts: Sequence[RangeFiles]) -> int:
        """Quarantine the rows that a rule refused, under the token of the snapshot; returns their number.

        Raises LimitExceededError, before anything is written.
        """
        files, table = [file for part in parts for file in part.refused], target.table.id
        refused = sum(file.rows for file in files)
        if not refused or self.checks is None:
            return 0
        self.checks.require_limits(table, refused, refused + sum(part.rows for part in parts), refused)
        into = Quarantining(self.paths, self.scope, target.table, schema_version, self.history_minutes)
        quarantine_reads(self.paths.quarantine(table), into.rows(file.read(target.lake) for file in files), token)
        failpoints.hit(failpoints.AFTER_QUARANTINE)
        reasons = told(summed(file.reasons for file in files))
        _log.warning("%s: %s rows that were read are in quarantine (%s).", table, f"{refused:,}", reasons)
        return refused

    def _kept(self, table: TableSchema, lsn: Lsn) -> KeptRows:
        """Return the key and position by which rows are kept that the snapshot does not show."""
        taken = Truncation(int(lsn), -1, pa.scalar(self.taken_us, pa.timestamp("us", tz="UTC")))
        return KeptRows(table.row_key, taken, self.keeps_dropped)

    def _enable_features(self, lake: DeltaTable, table: TableSchema) -> None:
        """Enable the features that tables are to have from the start."""
        lake.refresh()
        before = features_on(lake)
        on_conflict(lambda: self.features.enable_missing(lake, table), lake)
        announce(str(table.id), features_on(lake) - before)
        if self.database:
            with received(f"registering {table.id} in Spark's catalogue"):
                # All tables of the snapshot are recorded before the first one is committed.
                names = names_in_spark({table.id, *SchemaLog(self.paths.schema_versions, {}).read()})
                register(self.spark, self.database, names[table.id], table.id, lake.path)
