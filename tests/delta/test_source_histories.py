"""Random histories on a real Delta table, whose files are rewritten or rows marked, end at the source's rows."""

from __future__ import annotations

import os
import random
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.lake.apply.added import Inserts, Replacement
from cdc_core.lake.apply.changes import Changes, prepare
from cdc_core.lake.apply.keyed import KeyedChanges
from cdc_core.lake.apply.multiset_rows import MultisetChanges
from cdc_core.lake.schema.lake_schema import lake_schema
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.delta.source_model import KEYLESS, ROW, TABLE, SourceTable, plain
from tests.support.applied_lake import MARKED, REWRITTEN, AppliedLake
from tests.support.spark import AT, change, change_schema, row_type

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("WAL2LAKE_SEED", "20261121"))
LAKE = lake_schema(ROW)


class Follower:
    """Applies a source's transactions to a lake table in the way it is told."""

    def __init__(self, spark: Any, folder: Path, source: SourceTable, files: int = 2) -> None:
        self.source, self.chance = source, random.Random(source.seed)
        self.table = KEYLESS if source.keyless else TABLE
        self.lake = AppliedLake(folder, LAKE, spark)
        rows = source.snapshot()
        for part in range(files if rows else 0):
            self.lake.add(pa.Table.from_pylist(rows[part::files], schema=LAKE))

    def follow(
        self, transactions: int, statements: int, way: str, only_inserts: bool = False, truncated: bool = False
    ) -> Changes:
        made = [self.source.next_transaction(statements, only_inserts) for _ in range(transactions)]
        if truncated:
            made += [self.source.truncate(), self.source.next_transaction(statements)]
        rows = [row for transaction in made for row in transaction]
        self.chance.shuffle(rows)
        changes = prepare(pa.Table.from_pylist(rows, schema=change_schema(ROW)), self.table, LAKE)
        before = len(self.lake.rows)
        inserted, updated, deleted = self.lake.apply(changes, way)
        after = self.lake.rows
        assert plain(after) == plain(self.source.rows)
        assert len(after) - before == inserted - deleted
        assert not (self.source.keyless and updated)
        return changes


def test_keyed_histories(spark: Any, tmp_path: Path) -> None:
    source = SourceTable(SEED, histories=100)
    source.next_transaction(300)
    follower = Follower(spark, tmp_path, source)
    for way, statements in ((REWRITTEN, 60), (MARKED, 150), (MARKED, 5)):
        assert isinstance(follower.follow(4, statements, way), KeyedChanges)


@pytest.mark.parametrize("way", [REWRITTEN, MARKED])
def test_keys_of_many_types(spark: Any, tmp_path: Path, way: str) -> None:
    kinds = {
        "d": pa.date32(),
        "n": pa.decimal128(38, 10),
        "f": pa.float64(),
        "t": pa.timestamp("us"),
        "b": pa.binary(),
        "o": pa.bool_(),
        "l": pa.list_(pa.string()),
        "m": pa.map_(pa.string(), pa.string()),
        "s": pa.struct([("x", pa.int32())]),
    }
    row = row_type(**kinds, v=pa.string())
    whole = {"d": date(1400, 1, 1), "n": Decimal("1.5"), "f": float("nan"), "t": datetime(1, 1, 1), "b": b"\x00"}
    whole |= {"o": True, "l": ["x", None], "m": [("a", "1"), ("b", None)], "s": {"x": 1}}
    same = {**whole, "m": [("b", None), ("a", "1")]}
    # Values that their natural types cannot hold: the rows differ by their texts alone.
    low, high = ({**whole, "d": None, "__rescued": {"d": text}} for text in ("-infinity", "infinity"))
    schema = lake_schema(row)
    lake = AppliedLake(tmp_path, schema, spark)
    at = {"__commit_lsn": 1, "__tx_index": -1, "__commit_ts": AT}
    rows = [{**each, **at, "v": "old"} for each in (whole, low, high)]
    lake.add(pa.Table.from_pylist(rows, schema=schema))
    moved = {**high, "n": None, "__rescued": {"d": "infinity", "n": "NaN"}}
    made = [
        change("u", 10, 0, None, {**same, "v": "new"}),
        change("d", 10, 1, low),
        change("u", 10, 2, high, {**moved, "v": None}, ["v"]),
        change("u", 10, 3, None, {**moved, "v": None}, ["v"]),
    ]
    columns = tuple(Column(name, PgType(25, "text"), optional=False) for name in kinds)
    table = TableSchema(TableId("public", "t"), 1, columns, primary_key=tuple(kinds))
    changes = prepare(pa.Table.from_pylist(made, schema=change_schema(row)), table, schema)
    assert lake.apply(changes, way) == (1, 1, 2)
    found = {(each["v"], tuple(sorted((each["__rescued"] or {}).items()))) for each in lake.rows}
    assert found == {("new", ()), ("old", (("d", "infinity"), ("n", "NaN")))}


@pytest.mark.parametrize("way", [REWRITTEN, MARKED])
def test_an_older_change_never_overwrites_a_newer_row_past_the_overlap(spark: Any, tmp_path: Path, way: str) -> None:
    lake = AppliedLake(tmp_path, LAKE, spark)
    row = {"h": 0, "v": 1, "big": "lake", "__commit_lsn": 50, "__tx_index": 3, "__commit_ts": AT}
    lake.add(pa.Table.from_pylist([{**row, "k": key} for key in "abcd"], schema=LAKE))
    made = [
        change("u", 50, 3, None, {"h": 0, "k": "a", "v": 2}, xid=9),
        change("u", 50, 4, None, {"h": 0, "k": "b", "v": 2}, ["big"], xid=9),
        change("d", 49, 9, {"h": 0, "k": "c"}, xid=9),
        change("u", 49, 8, None, {"h": 0, "k": "d", "v": 2}, xid=8),
    ]
    rows = pa.Table.from_pylist(made, schema=change_schema(ROW))
    assert lake.apply(prepare(rows, TABLE, LAKE), way) == (0, 1, 0)
    assert sorted((each["k"], each["v"], each["big"]) for each in lake.rows) == [
        ("a", 1, "lake"),
        ("b", 2, "lake"),
        ("c", 1, "lake"),
        ("d", 1, "lake"),
    ]
    # While a snapshot's overlap lasts, what the snapshot shows is left out instead, and nothing else.
    assert lake.apply(prepare(rows, TABLE, LAKE, "9:9:"), way) == (0, 2, 1)
    assert sorted((each["k"], each["v"], each["big"]) for each in lake.rows) == [
        ("a", 2, None),
        ("b", 2, "lake"),
        ("d", 1, "lake"),
    ]


@pytest.mark.parametrize("keyless", [False, True])
def test_truncates(spark: Any, tmp_path: Path, keyless: bool) -> None:
    source = SourceTable(SEED, histories=3, keyless=keyless)
    source.next_transaction(60)
    follower = Follower(spark, tmp_path, source)
    for way in (REWRITTEN, MARKED):
        assert isinstance(follower.follow(2, 60, way, truncated=True), Replacement)


def test_multisets(spark: Any, tmp_path: Path) -> None:
    source = SourceTable(SEED, histories=2, keyless=True)
    source.next_transaction(80)
    follower = Follower(spark, tmp_path, source)
    for way in (REWRITTEN, MARKED):
        assert isinstance(follower.follow(3, 60, way), MultisetChanges)


@pytest.mark.parametrize("way", [REWRITTEN, MARKED])
def test_inserts_alone_are_appended(spark: Any, tmp_path: Path, way: str) -> None:
    follower = Follower(spark, tmp_path, SourceTable(SEED, histories=40))
    before = {file.path for file in follower.lake.table.files}
    assert isinstance(follower.follow(2, 50, way, only_inserts=True), Inserts)
    assert before <= {file.path for file in follower.lake.table.files}
