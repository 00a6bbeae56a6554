"""Random histories on a real Delta table in the delete modes that keep rows, with files rewritten or rows marked."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.lake.delete_columns import as_live
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.schema.lake_schema import lake_schema
from tests.delta.kept_model import KeptModel
from tests.delta.source_model import ROW, TABLE, SourceTable
from tests.support.applied_lake import MARKED, REWRITTEN, AppliedLake
from tests.support.spark import change_schema
from tests.support.spark import lake_schema as bare_schema
from tests.support.truncates import prepared
from tests.unit.lake.test_delete_modes_model import MODES, assert_history, assert_soft

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("WAL2LAKE_SEED", "20261121"))


class Follower:
    """Applies a source's transactions to a lake table in the way it is told, and to the model."""

    def __init__(self, spark: Any, folder: Path, source: SourceTable, mode: DeleteMode) -> None:
        self.source, self.mode, self.chance = source, mode, random.Random(source.seed)
        self.lake = AppliedLake(folder, lake_schema(ROW, mode), spark)
        self.model = KeptModel(("h", "k"))
        rows = source.snapshot()
        self.model.take(rows, (source.lsn, -1, None))
        if rows:
            self.lake.add(as_live(pa.Table.from_pylist(rows, schema=bare_schema(ROW)), mode))

    def follow(self, statements: int, way: str, truncated: bool = False) -> None:
        transactions = [self.source.next_transaction(statements) for _ in range(2)]
        transactions += [self.source.truncate()] if truncated else []
        transactions += [self.source.next_transaction(statements) for _ in range(2)]
        rows = [row for transaction in transactions for row in transaction]
        for row in rows:
            self.model.apply(row)
        self.chance.shuffle(rows)
        made = pa.Table.from_pylist(rows, schema=change_schema(ROW))
        changes = prepared(made, TABLE, self.lake.table.schema)
        before = len(self.lake.rows)
        inserted, _, _ = self.lake.apply(changes, way, made)
        after = self.lake.rows
        (assert_soft if self.mode is DeleteMode.SOFT else assert_history)(after, self.model)
        assert len(after) - before == inserted


@pytest.mark.parametrize("mode", MODES)
def test_histories_in_both_ways(spark: Any, tmp_path: Path, mode: DeleteMode) -> None:
    """Without a truncate, and with one amid changes of rows that the lake has."""
    source = SourceTable(SEED, histories=60)
    source.next_transaction(200)
    follower = Follower(spark, tmp_path, source, mode)
    follower.follow(60, REWRITTEN)
    follower.follow(100, MARKED)
    follower.follow(30, MARKED, truncated=True)
