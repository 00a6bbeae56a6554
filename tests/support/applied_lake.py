"""A lake table on disk to which prepared slices are applied, one Delta commit each; read by delta-rs and by Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdc_core.lake.apply.change_feed import change_files
from cdc_core.lake.apply.changes import Changes, apply
from cdc_core.lake.apply.ways import REWRITE, Ways
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.schema.lake_schema import lake_properties
from tests.support.spark import lake_rows
from tests.support.truncates import applied

REWRITTEN, MARKED = "rewritten", "marked"


class AppliedLake:
    """One Delta table; ``spark`` None: it is not read by Spark. ``key``: of the rows of its change data feed."""

    def __init__(self, folder: Path, schema: pa.Schema, spark: Any = None, key: Sequence[str] = ()) -> None:
        self.spark, self.key = spark, key
        self.table = DeltaTable.create(str(folder / "lake"), schema, lake_properties(0))
        self.commits = 0

    def add(self, rows: pa.Table) -> None:
        """One more file."""
        self.table.commit([self.table.write(rows)])

    def apply(self, changes: Changes, way: str = REWRITTEN, rows: pa.Table | None = None) -> tuple[int, int, int]:
        """Apply a slice; rows inserted, updated and deleted. ``rows``: its change rows, if a truncate may end rows."""
        self.commits += 1
        if way == MARKED:
            self.table.enable_vectors()
        ways = Ways(0) if way == MARKED else REWRITE
        rewrite = apply(self.table, changes, ways=ways) if rows is None else applied(self.table, changes, rows, ways)
        added = [self.table.write(rows) for rows in rewrite.rows]
        changes_made = change_files(self.table, added, rewrite.removed, rewrite.marked, self.key)
        told = {"txns": {"test": self.commits}, "changes": changes_made}
        self.table.commit(added, rewrite.removed, marked=rewrite.marked, **told)
        return rewrite.inserted, rewrite.updated, rewrite.deleted

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every row, as delta-rs reads it and, if there is a session, Spark too; maps as dictionaries."""
        rows = lake_rows(self.table.path)
        if self.spark is not None:
            found = self.spark.read.format("delta").load(self.table.path).toArrow()
            assert texts(pa.table(found), self.table.schema.names) == texts(rows, self.table.schema.names)
        return rows


def texts(rows: pa.Table | list[dict[str, Any]], names: list[str]) -> list[str]:
    """Rows as texts, sorted; the entries of a map have no order."""
    found = rows.to_pylist() if isinstance(rows, pa.Table) else rows
    return sorted(repr([_ordered(row[name]) for name in names]) for row in found)


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted(value.items(), key=repr)
    is_map = isinstance(value, list) and value and all(isinstance(each, tuple) for each in value)
    return sorted(value, key=repr) if is_map else value
