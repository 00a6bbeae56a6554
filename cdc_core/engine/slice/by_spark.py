"""Has Spark merge a staged slice into its lake table, in the driver.

Spark's Python modules are not needed, nor imported, if every slice fits a task.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc_core.engine.slice.lake_tables import existing
from cdc_core.engine.slice.outcome import Applied, Staged, overtaken
from cdc_core.errors import TransientError
from cdc_core.lake.apply.staging import remove_staged, staged_files
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.positions import check_epoch, chunk_writes_app, lake_position, merge_app
from cdc_core.lake.rows.run_files import Owner, check_parquet
from cdc_core.lake.schema.features import FeaturePolicy
from cdc_core.schema.table import TableId
from cdc_core.spark.errors import received

if TYPE_CHECKING:
    from cdc_core.lake.spark.expressions import Counts

_SPARK_FILES = 48


@dataclass(frozen=True, slots=True)
class SparkMerge:
    """Merges staged slices into the lake table at ``path``, whose content is from the snapshot ``token``.

    ``owner`` is the run that staged them.
    """

    path: str
    scope: str
    table: TableId
    token: int
    owner: Owner
    features: FeaturePolicy

    def merge(self, spark: Any, waiting: Staged) -> Applied:
        """Merge a staged slice. Raises TransientError if another writer's commit conflicts."""
        return self._apply(spark, waiting, merge_app(self.scope, self.table, self.token), waiting.to_lsn)

    def write_chunks(self, spark: Any, waiting: Staged) -> Applied:
        """As ``merge``, for staged rows of an incremental snapshot, which do not change the merged LSN.

        They show the source as of ``waiting.to_lsn``, so a table that has later changes cannot take them.
        """
        app = chunk_writes_app(self.scope, self.table)
        return self._apply(spark, waiting, app, (existing(self.path).txn(app) or 0) + 1)

    def _apply(self, spark: Any, waiting: Staged, app: str, version: int) -> Applied:
        """``app`` and ``version`` are the position of the commit."""
        from cdc_core.lake.spark.optimize import compact

        for file in staged_files(waiting.path, waiting.facts):
            check_parquet(file, self.owner, str(self.table))
        # Compaction (OPTIMIZE) conflicts too. It replaces files and changes no row, so the result is the same.
        counts = on_conflict(lambda: self._attempt(spark, waiting, app, version))
        remove_staged(waiting.path)
        lake = DeltaTable.open(self.path)
        if lake is None or lake.txn(app) != version:
            raise TransientError(
                f"Spark merged changes of {self.table}, but its lake table does not contain them.",
                "The next round merges them again; check for other writers of this lake.",
            )
        if len(lake.files) > _SPARK_FILES:
            # If another compaction conflicts, there are few files, or they are counted again after the next merge.
            with suppress(TransientError), received(f"compacting files of {self.table}"):
                compact(spark, self.path)
        return Applied(lake.version, waiting.events, counts.inserted, counts.updated, counts.deleted)

    def _attempt(self, spark: Any, waiting: Staged, app: str, version: int) -> Counts:
        from cdc_core.lake.spark.expressions import Commit
        from cdc_core.lake.spark.merge import apply_staged

        metadata = {"slot": self.scope, "lsn": str(waiting.to_lsn), "snapshot": str(self.token)}
        commit, lake = Commit(self.path, app, version, json.dumps(metadata)), existing(self.path)
        check_epoch(lake, self.scope, self.table)
        self._check_position(lake, waiting, app)
        # delta-rs has read the log already. To ask Spark would be a query of its own for each merge.
        enables_vectors = self.features.marks_rows(lake) and not lake.marks_rows
        with received(f"merging changes of {self.table}"):
            return apply_staged(spark, waiting.path, waiting.facts, commit, enables_vectors, str(self.table))

    def _check_position(self, lake: DeltaTable, waiting: Staged, app: str) -> None:
        """Raise TransientError if the table is not one that the staged rows were prepared for.

        Another writer may have read it anew, or merged a part of the slice. Spark's MERGE leaves out what the table has
        as a whole, by the position of its commit; what it has in part would be merged again: a multiset would have
        these rows twice, a history two versions of each. Rows of a snapshot would hide later changes.
        """
        at = lake_position(lake, self.scope, self.table)
        is_ahead = waiting.merged < at.merged < waiting.to_lsn
        if app == chunk_writes_app(self.scope, self.table):
            is_ahead = at.merged > waiting.to_lsn
        if at.merge_token != self.token or is_ahead:
            raise overtaken(self.table)
