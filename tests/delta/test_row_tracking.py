"""Row tracking: rows keep their ids and commit versions, whoever writes them next; Spark reads both."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.compaction import compact
from cdc_core.lake.schema.evolve import evolve
from cdc_core.lake.schema.features import Evolution, FeaturePolicy, enabled
from cdc_core.lake.schema.project import SchemaStep, StepColumn
from cdc_core.lake.write.maintain import Retention, maintain
from cdc_core.schema.changes import DeltaFeature
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.support.one_table import OneTable
from tests.support.spark import change, row_type

pytestmark = pytest.mark.spark

INT8, TEXT = PgType(20, "int8"), PgType(25, "text")
TABLE = TableSchema(
    TableId("public", "t"), 1, (Column("id", INT8, optional=False), Column("v", TEXT)), primary_key=("id",)
)
ROW = row_type(id=pa.int64(), v=pa.string())
POLICY = FeaturePolicy(tracked=(r"public\.t",))

# Of each key, the id of its row and the version that last wrote it.
Tracked = dict[int, tuple[int, int]]


class Tracking:
    """A tracked table, and what its rows' ids and versions must be. Spark is the reader."""

    def __init__(self, spark: Any, side: OneTable) -> None:
        self.spark, self.side, self.lsn, self.used = spark, side, 10, set[int]()
        self.known = self.read()
        self.used |= {row_id for row_id, _ in self.known.values()}

    @property
    def lake(self) -> DeltaTable:
        found = DeltaTable.open(self.side.lake)
        assert found is not None
        return found

    def read(self) -> Tracked:
        rows = self.spark.sql(
            f"select id, _metadata.row_id as r, _metadata.row_commit_version as c from delta.`{self.side.lake}`"
        ).collect()
        assert len({row.r for row in rows}) == len(rows), "row ids are unique"
        return {row.id: (row.r, row.c) for row in rows}

    def merge(self, updated: set[int], deleted: set[int], added: set[int]) -> None:
        changes = [self._change("u", key) for key in updated] + [self._change("d", key) for key in deleted]
        changes += [self._change("c", key) for key in added]
        self.side.append(changes, whole=self.lsn)
        assert self.side.merge(self.lsn, token=1).applied is not None
        self.check(updated, deleted, added)

    def check(
        self, updated: set[int] = frozenset(), deleted: set[int] = frozenset(), added: set[int] = frozenset()
    ) -> None:  # type: ignore[assignment]
        """Updated rows keep their ids, others their versions too, and new rows have ids that no row ever had."""
        found, version = self.read(), self.lake.version
        wanted = {key: told for key, told in self.known.items() if key not in deleted}
        written = self.versions(found, updated | added)
        for key in updated:
            wanted[key] = wanted[key][0], written[key]
        assert added <= set(found)
        for key in added:
            assert found[key][0] not in self.used
            wanted[key] = found[key][0], written[key]
        assert found == wanted
        assert all(told[1] <= version for told in found.values())
        self.used |= {row_id for row_id, _ in found.values()}
        self.known = found

    def versions(self, found: Tracked, keys: set[int]) -> dict[int, int]:
        """The version of the commit that wrote these keys: one, and later than every other row's."""
        told = {found[key][1] for key in keys if key in found}
        before = max((version for _, version in self.known.values()), default=-1)
        assert len(told) <= 1 and all(version > before for version in told)
        return {key: version for key in keys for version in told}

    def _change(self, op: str, key: int) -> dict[str, Any]:
        self.lsn += 1
        row = {"id": key, "v": f"{op}{self.lsn}", "__rescued": None}
        before = None if op == "c" else {"id": key, "v": None, "__rescued": None}
        return change(op, self.lsn, 0, before, None if op == "d" else row)


def tracked_table(tmp_path: Path, spark: Any = None) -> OneTable:
    """``spark``: it gives the table row tracking, in commits of its own."""
    side = OneTable(tmp_path, TABLE, ROW)
    side.tables = replace(side.tables, features=POLICY)
    side.writer = replace(side.writer, features=POLICY)
    side.snapshot(1, [{"id": key, "v": "read"} for key in range(40)], lsn=1, schema_version=1)
    lake = DeltaTable.open(side.lake)
    assert lake is not None
    if spark is None:
        POLICY.enable_missing(lake, TABLE)
    else:
        spark.sql(f"alter table delta.`{side.lake}` set tblproperties ('delta.enableRowTracking' = 'true')")
    return side


@pytest.mark.parametrize("more", [(), (DeltaFeature.COLUMN_MAPPING,)])
def test_rows_keep_their_ids_whoever_writes_them(spark: Any, tmp_path: Path, more: tuple[DeltaFeature, ...]) -> None:
    """By rewriting, by marks, by moves of both programs, and in rows written anew for other columns."""
    side, draw = tracked_table(tmp_path, spark if more else None), random.Random(50)
    lake = DeltaTable.open(side.lake)
    assert lake is not None and "rowTracking" in lake.features
    if more:
        lake.commit(definition=enabled(lake, more))
    table = Tracking(spark, side)
    for number in range(6):
        if number == 3:
            side.mark_rows()
        keys = sorted(table.known)
        updated, deleted = set(draw.sample(keys, 8)), set(draw.sample(keys, 6))
        added = {1000 + 10 * number + at for at in range(5)}
        table.merge(updated - deleted, deleted, added)
    assert any(file.vector is not None for file in table.lake.files), "rows are marked"
    # Spark writes rows in between.
    spark.sql(f"update delta.`{side.lake}` set v = 'by Spark' where id % 3 = 0")
    table.check(updated={key for key in table.known if key % 3 == 0})
    table.merge(set(sorted(table.known)[:7]), set(), {2000})
    moved = table.lake
    assert compact(moved, 2, key=("id",)) > 1
    table.check()
    spark.sql(f"optimize delta.`{side.lake}`").collect()
    table.check()
    table.merge({2000}, set(), {2001, 2002})
    maintain(side.lake, Retention(60, 168))
    table.check()
    # Every row is written again with a new column: its id is as before.
    step = SchemaStep(
        2,
        (
            StepColumn("id", "id", pa.int64()),
            StepColumn("v", "v", pa.string()),
            StepColumn("n", None, pa.int32(), value=pa.scalar(7, pa.int32())),
        ),
    )
    evolve(table.lake, [step], Evolution(None), "app", {})
    table.check(updated=set(table.known))
