"""Random histories on a real Delta table: copy-on-write, Spark's MERGE, and both by turns end at the source's rows."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.sink.delta.changes import Road, prepare
from cdc_core.sink.delta.conform import plain_schema
from tests.delta.source_model import BAG, ROW, TABLE, SourceTable, plain
from tests.support.lake import ARROW, SPARK, TwoEngineLake
from tests.support.spark import change_schema, lake_schema

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("WAL2LAKE_SEED", "20261121"))
LAKE = plain_schema(lake_schema(ROW))


class Follower:
    """Applies a source's transactions to a lake table by the engine it is told."""

    def __init__(self, spark: Any, folder: Path, source: SourceTable, files: int = 2) -> None:
        self.source, self.chance = source, random.Random(source.seed)
        self.table = BAG if source.bag else TABLE
        self.lake = TwoEngineLake(folder, LAKE, spark)
        rows = source.snapshot()
        for part in range(files if rows else 0):
            self.lake.add(pa.Table.from_pylist(rows[part::files], schema=LAKE))

    def follow(self, transactions: int, statements: int, engine: str, only_inserts: bool = False) -> Road:
        made = [self.source.next_transaction(statements, only_inserts) for _ in range(transactions)]
        rows = [row for transaction in made for row in transaction]
        self.chance.shuffle(rows)
        changes = prepare(pa.Table.from_pylist(rows, schema=change_schema(ROW)), self.table, LAKE)
        before = len(self.lake.rows)
        inserted, updated, deleted = self.lake.apply(changes, engine)
        after = self.lake.rows
        assert plain(after) == plain(self.source.rows)
        assert len(after) - before == inserted - deleted
        assert not (self.source.bag and updated)
        return changes.road


@pytest.mark.parametrize("engines", [(SPARK,), (ARROW, SPARK)], ids="-".join)
def test_keyed_histories(spark: Any, tmp_path: Path, engines: tuple[str, ...]) -> None:
    source = SourceTable(SEED, histories=100)
    source.next_transaction(300)
    follower = Follower(spark, tmp_path, source)
    for number, statements in enumerate((150, 20, 90, 5)):
        assert follower.follow(4, statements, engines[number % len(engines)]) is Road.MERGE


@pytest.mark.parametrize("bag", [False, True])
def test_truncates(spark: Any, tmp_path: Path, bag: bool) -> None:
    source = SourceTable(SEED, histories=3, bag=bag, truncates=True)
    source.next_transaction(60)
    follower = Follower(spark, tmp_path, source)
    roads = {follower.follow(3, 60, engine) for engine in (SPARK, ARROW, SPARK)}
    assert Road.REPLACE in roads


def test_multisets(spark: Any, tmp_path: Path) -> None:
    source = SourceTable(SEED, histories=2, bag=True)
    source.next_transaction(80)
    follower = Follower(spark, tmp_path, source)
    for engine in (SPARK, ARROW, SPARK):
        assert follower.follow(3, 60, engine) is Road.MULTISET


@pytest.mark.parametrize("engine", [ARROW, SPARK])
def test_inserts_alone_are_appended(spark: Any, tmp_path: Path, engine: str) -> None:
    follower = Follower(spark, tmp_path, SourceTable(SEED, histories=40))
    before = {file.path for file in follower.lake.table.files}
    assert follower.follow(2, 50, engine, only_inserts=True) is Road.APPEND
    assert before <= {file.path for file in follower.lake.table.files}
