"""Tables take the source's shape, grow with it, and say so when they cannot."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.errors import TableError
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from cdc_core.sink.delta.changelog import append
from cdc_core.sink.delta.merge import Round, merge_round
from cdc_core.sink.delta.snapshot import write_snapshot
from tests.support.spark import AT, change, change_schema, frame, lake_rows, lake_schema, row_type

pytestmark = pytest.mark.spark
T = TableId("public", "shapes")


def table(*key: str) -> TableSchema:
    columns = tuple(Column(name, PgType(25, "text"), optional=False) for name in key)
    return TableSchema(T, 16403, columns, primary_key=key)


class Shapes:
    """One table whose shape changes."""

    def __init__(self, spark: Any, folder: Path, *key: str) -> None:
        self.spark, self.table = spark, table(*key)
        self.lake, self.changelog = str(folder / "lake"), str(folder / "changelog")
        self.lsn = 0

    def append(self, row: pa.StructType, *rows: dict[str, Any]) -> None:
        self.lsn += 10
        made = [{**each, "__commit_lsn": self.lsn, "__tx_index": n} for n, each in enumerate(rows)]
        append(frame(self.spark, made, change_schema(row)), self.changelog, "slot", T, self.lsn)

    def merge(self) -> None:
        assert merge_round(self.spark, Round("slot", self.table, self.changelog, self.lake, 0, self.lsn, 0)) is not None


def test_columns_are_added_dropped_and_narrowed(spark: Any, tmp_path: Path) -> None:
    shapes = Shapes(spark, tmp_path, "id")
    wide = row_type(id=pa.int64(), price=pa.decimal128(12, 4), tags=pa.list_(pa.int32()))
    shapes.append(wide, change("c", 0, 0, None, {"id": 1, "price": Decimal("1.25"), "tags": [1, None]}))
    shapes.merge()
    # price is narrower, tags is gone, "at" and "the name" came.
    later = row_type(id=pa.int32(), price=pa.decimal128(10, 2), at=pa.timestamp("us"), **{"the name": pa.string()})
    new = {"id": 2, "price": Decimal("2.50"), "at": datetime(1400, 1, 1, 5), "the name": "n"}
    shapes.append(later, change("c", 0, 0, None, new), change("u", 0, 1, None, {**new, "id": 1}))
    shapes.append(wide, change("d", 0, 0, {"id": 2}))
    shapes.merge()
    [row] = lake_rows(shapes.lake)
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


def test_a_type_that_the_table_cannot_hold_stops_it(spark: Any, tmp_path: Path) -> None:
    shapes = Shapes(spark, tmp_path, "id")
    shapes.append(row_type(id=pa.int32(), a=pa.string()), change("c", 0, 0, None, {"id": 1, "a": "x"}))
    with pytest.raises(TableError, match=r"after\.id|before\.id") as caught:
        shapes.append(row_type(id=pa.int64()), change("c", 0, 0, None, {"id": 1}))
    assert "new snapshot" in caught.value.remedy and caught.value.table == "public.shapes"
    with pytest.raises(TableError, match="tells no cases apart"):
        shapes.append(row_type(id=pa.int32(), A=pa.string(), a=pa.string()), change("c", 0, 0, None, {"id": 1}))
    assert len(lake_rows(shapes.changelog)) == 1


def test_a_snapshot_replaces_the_shape_too(spark: Any, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    for token, row, value in (
        (1, row_type(id=pa.int32(), a=pa.int32()), {"id": 1, "a": 2}),
        (2, row_type(id=pa.int64(), a=pa.timestamp("us"), **{"b c": pa.string()}), {"id": 1, "b c": "x"}),
    ):
        rows = [{**value, "__commit_lsn": 1, "__tx_index": -1, "__commit_ts": AT}]
        write_snapshot(frame(spark, rows, lake_schema(row)), lake, "slot", T, token=token)
    [row] = lake_rows(lake)
    assert (row["id"], row["a"], row["b c"]) == (1, None, "x")


def test_keys_of_many_types_match_by_value(spark: Any, tmp_path: Path) -> None:
    kinds = {
        "d": pa.date32(),
        "n": pa.decimal128(38, 10),
        "f": pa.float64(),
        "t": pa.timestamp("us"),
        "b": pa.binary(),
        "o": pa.bool_(),
        "l": pa.list_(pa.string()),
    }
    row = row_type(**kinds, v=pa.string())
    whole = {"d": date(2026, 1, 1), "n": Decimal("1.5"), "f": float("nan"), "t": datetime(1, 1, 1), "b": b"\x00"}
    whole |= {"o": True, "l": ["x", None]}
    # Values that their natural types cannot hold: the rows differ by their texts alone.
    low, high = ({**whole, "d": None, "__rescued": {"d": text}} for text in ("-infinity", "infinity"))
    shapes = Shapes(spark, tmp_path, *kinds)
    shapes.append(row, *[change("c", 0, 0, None, {**key, "v": "old"}) for key in (whole, low, high)])
    shapes.merge()
    moved = {**high, "n": None, "__rescued": {"d": "infinity", "n": "NaN"}}
    shapes.append(
        row,
        change("u", 0, 0, None, {**whole, "v": "new"}),
        change("d", 0, 1, low),
        change("u", 0, 2, high, {**moved, "v": None}, ["v"]),
        change("u", 0, 3, None, {**moved, "v": None}, ["v"]),
    )
    shapes.merge()
    found = {(each["v"], tuple(sorted((each["__rescued"] or {}).items()))) for each in lake_rows(shapes.lake)}
    assert found == {("new", ()), ("old", (("d", "infinity"), ("n", "NaN")))}


def test_an_unsent_key_is_taken_from_the_old_tuple(spark: Any, tmp_path: Path) -> None:
    row = row_type(k=pa.string(), v=pa.int32())
    shapes = Shapes(spark, tmp_path, "k")
    shapes.append(row, change("c", 0, 0, None, {"k": "long", "v": 1}), change("c", 0, 1, None, {"k": "b", "v": 1}))
    shapes.merge()
    shapes.append(row, change("u", 0, 0, {"k": "long"}, {"k": None, "v": 2}, ["k"]))
    shapes.merge()
    assert sorted((each["k"], each["v"]) for each in lake_rows(shapes.lake)) == [("b", 1), ("long", 2)]
