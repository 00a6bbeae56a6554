"""Makes the rows read from a table the content of its lake table: quarantine, one commit, features, changelog.

    events of the snapshot before ─▶ refused rows in quarantine ─▶ commit ─▶ features ─▶ events of this one

Each step may be repeated: a crash in between leaves the lake table as it was, or complete but for its features and
events, which the next run adds.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from cdc_core import failpoints
from cdc_core.lake.apply.kept_rows import KeptRows
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.reduce.row_states import Truncation
from cdc_core.lake.rows.row_keys import merge_key
from cdc_core.lake.schema.features import FeaturePolicy, announce, features_on
from cdc_core.lake.spark.register import register
from cdc_core.lake.stores.quarantine import end_former, quarantine_reads
from cdc_core.lake.stores.snapshot_events import complete_snapshot_events
from cdc_core.lake.write.refused_reads import Quarantining, ReadChecks, RefusedFile, discard, summed, told
from cdc_core.lake.write.replace import SnapshotCommit, commit_snapshot
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId, TableSchema
from cdc_core.spark import received

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReadTable:
    """The rows read from a table: ``files`` of ``lake`` with the columns of ``schema``, and files of ``refused`` rows.

    ``token`` is the snapshot's, ``lsn`` its position, ``schema_version`` the number of the one it was read in.
    """

    table: TableSchema
    lake: DeltaTable
    schema: pa.Schema
    token: int
    lsn: Lsn
    schema_version: int
    files: Sequence[DataFile]
    refused: Sequence[RefusedFile] = ()


@dataclass(frozen=True, slots=True)
class ReadTables:
    """Writes the tables of one snapshot, taken at ``taken_us`` (microseconds since 1970); any thread may use it.

    ``scope`` is that of the tables' positions, ``reads``: the rows are also appended to the changelogs.
    ``keeps_dropped``: if a delete mode keeps rows, columns dropped in the source stay. ``database``: Spark's, in which
    tables are registered, "" for none. ``checks`` have the limits of refused rows, None if checks are disabled.
    """

    spark: Any
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

    def replace(self, read: ReadTable) -> tuple[SnapshotCommit, int]:
        """Replace the lake table's rows; returns the commit, and the number of rows that were refused.

        Raises LimitExceededError before anything is written, LakeError, TransientError.
        """
        refused = self._quarantine(read)
        written = commit_snapshot(
            read.lake,
            read.files,
            read.schema,
            self.scope,
            read.table.id,
            token=read.token,
            schema_version=read.schema_version,
            facts={"lsn": str(read.lsn)},
            kept=self._kept(read.table, read.lsn),
        )
        failpoints.hit(failpoints.AFTER_SNAPSHOT_COMMIT)
        end_former(self.paths.quarantine(read.table.id), read.token)
        discard(read.lake, read.refused)
        self._enable_features(read.lake, read.table)
        return written, refused

    def _quarantine(self, read: ReadTable) -> int:
        """Quarantine the rows that a rule refused, under the token of the snapshot; returns their number.

        Raises LimitExceededError, before anything is written.
        """
        refused, table = sum(file.rows for file in read.refused), read.table.id
        if not refused or self.checks is None:
            return 0
        self.checks.require_limits(table, refused, refused + sum(file.rows for file in read.files), refused)
        into = Quarantining(self.paths, self.scope, read.table, read.schema_version, self.history_minutes)
        parts = into.rows(file.read(read.lake) for file in read.refused)
        quarantine_reads(self.paths.quarantine(table), parts, read.token)
        failpoints.hit(failpoints.AFTER_QUARANTINE)
        reasons = told(summed(file.reasons for file in read.refused))
        _log.warning("%s: %s rows that were read are in quarantine (%s).", table, f"{refused:,}", reasons)
        return refused

    def _kept(self, table: TableSchema, lsn: Lsn) -> KeptRows:
        """Return the key and position by which rows are kept that the snapshot does not show."""
        taken = Truncation(int(lsn), -1, pa.scalar(self.taken_us, pa.timestamp("us", tz="UTC")))
        return KeptRows(merge_key(table), taken, self.keeps_dropped)

    def _enable_features(self, lake: DeltaTable, table: TableSchema) -> None:
        """Enable the features that tables are to have from the start."""
        lake.refresh()
        before = features_on(lake)
        on_conflict(lambda: self.features.enable_missing(lake, table), lake)
        announce(str(table.id), features_on(lake) - before)
        if self.database:
            with received(f"registering {table.id} in Spark's catalogue"):
                register(self.spark, self.database, table.id, lake.path)
