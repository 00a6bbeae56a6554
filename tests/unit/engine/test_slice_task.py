"""A table's slice through the engine's task: histories, repeats, schema versions; no Spark, no server."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.errors import LakeError, TableError
from cdc_core.lake.schema.target_schema import TargetSchema
from cdc_core.lake.slice.order import MergeOrder, SliceOrder
from cdc_core.lake.slice.outcome import Applied, SliceOutcome
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.delta.source_model import KEYLESS, ROW, TABLE, SourceTable, plain
from tests.support.one_table import OneTable
from tests.support.spark import AT, change, lake_rows, row_type

SEED = int(os.environ.get("WAL2LAKE_SEED", "20261121"))
SHAPES = TableId("public", "shapes")


class Follower:
    """Appends a source's transactions and merges them, as the engine would."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.source = SourceTable(SEED, **settings)
        self.one = OneTable(folder, KEYLESS if self.source.keyless else TABLE, ROW)

    def take_snapshot(self) -> None:
        self.one.snapshot(1, self.source.snapshot())

    def change(self, transactions: int, statements: int, only_inserts: bool = False) -> int:
        made = [self.source.next_transaction(statements, only_inserts) for _ in range(transactions)]
        rows = [row for transaction in made for row in transaction]
        assert self.one.append(rows, rows[-1]["__commit_lsn"]) == len(rows)
        return len(rows)

    def merge(self) -> SliceOutcome:
        return self.one.merge(self.source.lsn, token=1)

    def assert_equal(self) -> None:
        assert plain(self.one.rows) == plain(self.source.rows)


@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("keyless", [False, True])
def test_histories_follow_the_source(tmp_path: Path, keyless: bool, truncates: bool) -> None:
    follower = Follower(tmp_path, histories=2 if keyless else 60, keyless=keyless, truncates=truncates)
    follower.source.next_transaction(80)
    follower.take_snapshot()
    for appends in (1, 2):
        before = len(follower.one.rows)
        for _ in range(appends):
            follower.change(3, 120)
        facts = follower.merge().applied
        follower.assert_equal()
        assert facts is not None and facts.inserted - facts.deleted == len(follower.source.rows) - before
        assert not (keyless and facts.updated)


def test_a_round_of_inserts_is_appended(tmp_path: Path) -> None:
    follower = Follower(tmp_path, histories=40)
    follower.take_snapshot()
    events = follower.change(2, 50, only_inserts=True)
    facts = follower.merge().applied
    assert facts == Applied(facts.version, events, events, 0, 0)
    follower.assert_equal()


def test_the_same_round_again_commits_nothing(tmp_path: Path) -> None:
    follower = Follower(tmp_path, histories=10)
    follower.source.next_transaction(30)
    follower.take_snapshot()
    follower.change(2, 40)
    first = follower.source.lsn
    assert follower.merge().applied is not None
    follower.change(1, 40)
    assert follower.one.merge(first, token=1).applied is None
    done = follower.merge()
    assert done.applied is not None and done.merged == follower.source.lsn
    follower.assert_equal()
    again = follower.merge()
    assert again.applied is None and again.merged == follower.source.lsn
    assert lake_rows(follower.one.lake, version=done.applied.version) == follower.one.rows
    # Past the last change there is nothing to write, but the round is as far.
    version = follower.one.held(follower.one.lake).version
    assert follower.one.merge(follower.source.lsn + 50, token=1).merged == follower.source.lsn + 50
    assert follower.one.held(follower.one.lake).version == version


def test_a_slice_under_another_snapshot_is_left_alone(tmp_path: Path) -> None:
    follower = Follower(tmp_path, histories=10)
    follower.take_snapshot()
    follower.change(2, 40)
    outcome = follower.one.task(follower.one.order(follower.source.lsn, token=7))
    assert outcome.applied is None and "re-read" in str(outcome.error)
    assert outcome.error is not None and outcome.error.__class__.__name__ == "TransientError"
    assert follower.one.rows == []


def test_a_missing_changelog_is_named(tmp_path: Path) -> None:
    one = OneTable(tmp_path, TABLE, ROW)
    with pytest.raises(LakeError, match="no longer exists"):
        one.merge(10)


def schema_versions(folder: Path, row: pa.StructType, *key: str) -> OneTable:
    columns = tuple(Column(name, PgType(25, "text"), optional=False) for name in key)
    return OneTable(folder, TableSchema(SHAPES, 16403, columns, primary_key=key), row)


def append(one: OneTable, lsn: int, *rows: dict[str, Any]) -> None:
    one.append([{**each, "__commit_lsn": lsn, "__tx_index": n} for n, each in enumerate(rows)], lsn)


def test_columns_are_added_dropped_and_narrowed(tmp_path: Path) -> None:
    wide = row_type(id=pa.int64(), price=pa.decimal128(12, 4), tags=pa.list_(pa.int32()))
    one = schema_versions(tmp_path, wide, "id")
    append(one, 10, change("c", 0, 0, None, {"id": 1, "price": Decimal("1.25"), "tags": [1, None]}))
    one.merge(10)
    # price is narrower, tags is gone, "at" and "the name" came.
    one.row = row_type(id=pa.int32(), price=pa.decimal128(10, 2), at=pa.timestamp("us"), **{"the name": pa.string()})
    new = {"id": 2, "price": Decimal("2.50"), "at": datetime(1400, 1, 1, 5), "the name": "n"}
    append(one, 20, change("c", 0, 0, None, new), change("u", 0, 1, None, {**new, "id": 1}))
    one.row, later = wide, one.row
    append(one, 30, change("d", 0, 0, {"id": 2}))
    one.row = later
    one.merge(30)
    [row] = one.rows
    assert row == {
        "id": 1,
        "price": Decimal("2.5000"),
        "tags": None,
        "at": datetime(1400, 1, 1, 5),
        "the name": "n",
        "__rescued": None,
        "__commit_lsn": 20,
        "__tx_index": 1,
        "__commit_ts": AT,
    }


def test_a_type_that_the_table_cannot_hold_stops_it(tmp_path: Path) -> None:
    one = schema_versions(tmp_path, row_type(id=pa.int32(), a=pa.string()), "id")
    append(one, 10, change("c", 0, 0, None, {"id": 1, "a": "x"}))
    one.row = row_type(id=pa.int64())
    with pytest.raises(TableError, match=r"after\.id|before\.id") as caught:
        append(one, 20, change("c", 0, 0, None, {"id": 1}))
    assert "new snapshot" in caught.value.remedy and caught.value.table == "public.shapes"
    one.row = row_type(id=pa.int32(), A=pa.string(), a=pa.string())
    with pytest.raises(TableError, match="names are not case-sensitive"):
        append(one, 20, change("c", 0, 0, None, {"id": 1}))
    assert one.events == [(10, 0)]


def test_a_lake_table_that_cannot_hold_the_type_fails_alone_and_keeps_its_rows(tmp_path: Path) -> None:
    one = schema_versions(tmp_path, row_type(id=pa.int64()), "id")
    append(one, 10, change("c", 0, 0, None, {"id": 1}))
    one.merge(10)
    one.row = row_type(id=pa.string())
    outcome = one.task(SliceOrder(TargetSchema(one.table), merge=MergeOrder(20, has_backlog=True)))
    assert isinstance(outcome.error, TableError) and outcome.merged is None
    assert [row["id"] for row in one.rows] == [1]


def test_a_snapshot_replaces_the_schema_version_too(tmp_path: Path) -> None:
    one = schema_versions(tmp_path, row_type(id=pa.int32(), a=pa.int32()), "id")
    one.snapshot(1, [{"id": 1, "a": 2}])
    one.row = row_type(id=pa.int64(), a=pa.timestamp("us"), **{"b c": pa.string()})
    one.snapshot(2, [{"id": 1, "b c": "x"}])
    [row] = one.rows
    assert (row["id"], row["a"], row["b c"]) == (1, None, "x")
    append(one, 10, change("u", 0, 0, None, {"id": 1, "a": datetime(1400, 1, 1), "b c": "y"}))
    one.merge(10, token=2)
    [row] = one.rows
    assert (row["id"], row["a"], row["b c"]) == (1, datetime(1400, 1, 1), "y")


def test_an_unsent_key_is_taken_from_the_old_tuple(tmp_path: Path) -> None:
    one = schema_versions(tmp_path, row_type(k=pa.string(), v=pa.int32()), "k")
    append(one, 10, change("c", 0, 0, None, {"k": "long", "v": 1}), change("c", 0, 1, None, {"k": "b", "v": 1}))
    one.merge(10)
    append(one, 20, change("u", 0, 0, {"k": "long"}, {"k": None, "v": 2}, ["k"]))
    one.merge(20)
    assert sorted((each["k"], each["v"]) for each in one.rows) == [("b", 1), ("long", 2)]


def test_an_order_without_a_cut_leaves_the_lake_alone(tmp_path: Path) -> None:
    follower = Follower(tmp_path, histories=4)
    follower.change(1, 10)
    outcome = follower.one.task(replace(follower.one.order(0), merge=None))
    assert outcome.applied is None and outcome.error is None
    assert follower.one.lake_position == (None, None)
