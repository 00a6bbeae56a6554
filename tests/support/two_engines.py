"""A lake table on disk to which either engine applies prepared slices, one Delta commit each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_core.lake.apply.changes import Changes, apply
from cdc_core.lake.apply.staging import staged
from cdc_core.lake.apply.strategy import MergeStrategy
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.schema.lake_schema import lake_properties
from cdc_core.lsn import Lsn

ARROW, SPARK = "arrow", "spark"


class TwoEngineLake:
    """One Delta table. ``spark`` may be None where only the Arrow engine is asked."""

    def __init__(self, folder: Path, schema: pa.Schema, spark: Any = None) -> None:
        self.folder, self.spark = folder, spark
        self.table = DeltaTable.create(str(folder / "lake"), schema, lake_properties(0))
        self.commits = 0

    def add(self, rows: pa.Table) -> None:
        """One more file."""
        self.table.commit([self.table.write(rows)])

    def apply(self, changes: Changes, engine: str = ARROW) -> tuple[int, int, int]:
        """Apply a slice; rows inserted, updated and deleted."""
        self.commits += 1
        if engine == SPARK:
            return self._by_spark(changes)
        assert not self.table.has_deletion_vectors
        rewrite = apply(self.table, changes)
        added = [self.table.write(rows) for rows in rewrite.rows]
        self.table.commit(added, rewrite.removed, txns={"test": self.commits})
        return rewrite.inserted, rewrite.updated, rewrite.deleted

    def _by_spark(self, changes: Changes) -> tuple[int, int, int]:
        from cdc_core.lake.spark.expressions import Commit
        from cdc_core.lake.spark.merge import apply_staged

        rows, facts = staged(changes)
        if facts.strategy in (MergeStrategy.MERGE, MergeStrategy.VERSIONS):
            # Before a merge of the command a statement of Spark does it, which takes half a CPU second.
            self.table.enable_vectors()
        path = str(self.folder / f"staged-{self.commits}.parquet")
        pq.write_table(rows, path)
        done = apply_staged(self.spark, path, facts, Commit(self.table.path, "test", Lsn(self.commits), "{}"))
        self.table.refresh()
        assert self.table.txn("test") == self.commits
        return done.inserted, done.updated, done.deleted

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every row, read by delta-rs' own engine; maps as dictionaries."""
        from deltalake import QueryBuilder

        found = QueryBuilder().register("lake", self.table.raw()).execute("select * from lake").read_all()
        schema = self.table.schema
        maps = [each.name for each in schema if pa.types.is_map(each.type)]
        rows = pa.table(found).to_pylist()
        for row in rows:
            row.update({name: dict(row[name]) for name in maps if row[name] is not None})
        return rows
