"""Copy-on-write: which files are read and written anew, which change may overwrite which row, what is counted."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.errors import TableError
from cdc_core.lake.apply.changes import Changes, apply, prepare
from cdc_core.lake.apply.keyed import KeyedChanges
from cdc_core.lake.apply.rewrite import Rewrite
from cdc_core.lake.delta.candidates import Ranges
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.schema.lake_schema import lake_schema
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.relation import ReplicaIdentity
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.support.content import MemoryContent
from tests.support.spark import AT, change, change_schema, row_type

ROW = row_type(k=pa.int64(), v=pa.int32(), big=pa.string())


def schema_of(*key: str) -> TableSchema:
    columns = tuple(Column(name, PgType(25, "text"), optional=False) for name in key)
    return TableSchema(TableId("public", "t"), 1, columns, primary_key=key, identity=ReplicaIdentity.FULL)


SCALE = 2**20  # files are too large to be read whole at once


class Lake:
    """A table in memory whose files are given as lists of rows."""

    def __init__(self, *files: list[dict[str, Any]], row: pa.StructType = ROW, key: tuple[str, ...] = ("k",)) -> None:
        self.row, self.table = row, schema_of(*key)
        self.content = MemoryContent(lake_schema(row), scale=SCALE)
        for rows in files:
            made = [{"__commit_lsn": 1, "__tx_index": -1, "__commit_ts": AT, **each} for each in rows]
            self.content.add(pa.Table.from_pylist(made, schema=self.content.schema))

    def prepare(self, *rows: dict[str, Any], snapshot: str | None = None) -> Changes:
        return prepare(
            pa.Table.from_pylist(list(rows), schema=change_schema(self.row)), self.table, self.content.schema, snapshot
        )

    def apply(self, *rows: dict[str, Any], snapshot: str | None = None, file_bytes: int = SCALE * 2**20) -> Rewrite:
        self.content.reads.clear()
        rewrite = apply(self.content, self.prepare(*rows, snapshot=snapshot), file_bytes)
        self.content.commit(rewrite)
        return rewrite

    @property
    def rows(self) -> dict[Any, Any]:
        return {row["k"]: (row["v"], row["big"]) for row in self.content.rows}


def held(*keys: int, **values: Any) -> list[dict[str, Any]]:
    return [{"k": key, "v": key, "big": f"lake {key}", **values} for key in keys]


def put(op: str, index: int, key: int, old: int | None = None, unsent: bool = False, lsn: int = 10) -> dict[str, Any]:
    after = {"k": key, "v": 100 + index, "big": None if unsent else f"sent {index}"}
    return change(op, lsn, index, None if old is None else {"k": old}, after, ["big"] if unsent else [])


def counts(rewrite: Rewrite) -> tuple[int, int, int]:
    return rewrite.inserted, rewrite.updated, rewrite.deleted


def test_only_files_with_a_hit_are_read_completely_and_rewritten() -> None:
    lake = Lake(held(1, 5), held(2, 6), held(100, 200))
    rewrite = lake.apply(put("u", 0, 2), put("u", 1, 3))
    assert [path for path, columns in lake.content.reads if columns is None] == ["file-2"]
    assert {path for path, _ in lake.content.reads} == {"file-1", "file-2"}
    assert [file.path for file in rewrite.removed] == ["file-2"]
    assert counts(rewrite) == (1, 1, 0)
    assert lake.rows == {1: (1, "lake 1"), 5: (5, "lake 5"), 6: (6, "lake 6"), 100: (100, "lake 100")} | {
        200: (200, "lake 200"),
        2: (100, "sent 0"),
        3: (101, "sent 1"),
    }


def test_small_files_are_read_once() -> None:
    lake = Lake(held(1, 5), held(2, 6))
    lake.content.files = [replace(file, size=1000) for file in lake.content.files]
    swap = [put("u", 0, 9, 1, True), put("u", 1, 1, 2, True), put("u", 2, 2, 9, True)]
    rewrite = lake.apply(*swap)
    assert lake.content.reads == [("file-1", None), ("file-2", None)]
    assert counts(rewrite) == (0, 2, 0) and lake.rows[1] == (101, "lake 2") and lake.rows[2] == (102, "lake 1")


def test_the_caller_knows_what_must_be_looked_into_before_anything_is_read() -> None:
    lake = Lake(held(1, 5), held(2, 6), held(100, 200))
    changes = lake.prepare(put("u", 0, 2), change("d", 10, 1, {"k": 150}))
    assert [file.path for file in changes.candidates(lake.content)] == ["file-1", "file-2", "file-3"]
    changes = lake.prepare(put("u", 0, 4), change("d", 10, 1, {"k": 50}))
    assert [file.path for file in changes.candidates(lake.content)] == ["file-1", "file-2"]
    assert not lake.content.reads


def test_inserts_past_the_overlap_are_appended_unread() -> None:
    lake = Lake(held(1, 5))
    rewrite = lake.apply(put("c", 0, 2), put("c", 1, 3))
    assert not lake.content.reads and not rewrite.removed
    assert counts(rewrite) == (2, 0, 0) and len(lake.content.files) == 2
    assert isinstance(lake.prepare(put("c", 0, 2), snapshot="5:5:"), KeyedChanges)


def test_new_rows_join_the_smallest_rewritten_file() -> None:
    lake = Lake(held(*range(20)), held(*range(100, 103)))
    lake.apply(put("u", 0, 3), put("u", 1, 101), put("c", 2, 500))
    assert sorted(file.rows for file in lake.content.files) == [4, 20]


def test_new_rows_that_find_no_room_make_files_of_bounded_size() -> None:
    lake = Lake(held(*range(100)))
    size = lake.content.files[0].size
    new = [put("c", number, 1000 + number) for number in range(1, 101)]
    lake.apply(put("u", 0, 3), *new, file_bytes=size // 2 + 1)
    assert sorted(file.rows for file in lake.content.files) == [50, 50, 100]


def test_a_file_whose_rows_are_all_deleted_leaves_none() -> None:
    lake = Lake(held(1, 2), held(3))
    rewrite = lake.apply(change("d", 10, 0, {"k": 1}), change("d", 10, 1, {"k": 2}), change("d", 10, 2, {"k": 9}))
    assert counts(rewrite) == (0, 0, 2)
    assert [file.path for file in lake.content.files] == ["file-2"]


def test_an_older_change_never_overwrites_a_newer_row() -> None:
    at = {"__commit_lsn": 10, "__tx_index": 5}
    lake = Lake([*held(1, 2, 3, **at), *held(4, __commit_lsn=11, __tx_index=0)], held(50, **at))
    older = [put("u", 4, 1), put("u", 5, 2), put("u", 9, 4), change("d", 10, 3, {"k": 50})]
    rewrite = lake.apply(*older, put("u", 6, 3))
    assert counts(rewrite) == (0, 1, 0) and [file.path for file in rewrite.removed] == ["file-1"]
    assert lake.rows[3] == (106, "sent 6") and lake.rows[1] == (1, "lake 1") and lake.rows[4] == (4, "lake 4")
    assert 50 in lake.rows
    again = lake.apply(*older)
    assert again.changes_nothing and not again.removed


def test_in_a_snapshots_overlap_positions_do_not_count_but_visibility_does() -> None:
    lake = Lake(held(1, 2, __commit_lsn=50))
    shown = {**put("u", 0, 2, lsn=40), "__xid": 700}
    hidden = {**put("u", 0, 1, lsn=41), "__xid": 699}
    rewrite = lake.apply(shown, hidden, put("c", 1, 3, lsn=42) | {"__xid": 702}, snapshot="699:702:699,701")
    assert counts(rewrite) == (1, 1, 0)
    assert lake.rows == {1: (100, "sent 0"), 2: (2, "lake 2"), 3: (101, "sent 1")}


def test_kept_values_come_from_the_row_itself() -> None:
    lake = Lake(held(1, 2))
    lake.apply(put("u", 0, 1, unsent=True), put("u", 1, 2), put("u", 2, 7, unsent=True))
    assert lake.rows == {1: (100, "lake 1"), 2: (101, "sent 1"), 7: (102, None)}


@pytest.mark.parametrize("files", [([1, 2, 3],), ([1], [2, 3]), ([2], [3], [1])])
def test_moved_rows_bring_their_kept_values_from_wherever_they_stood(files: tuple[list[int], ...]) -> None:
    lake = Lake(*[held(*keys) for keys in files])
    swap = [put("u", 0, 9, 1, True), put("u", 1, 1, 2, True), put("u", 2, 2, 9, True), put("u", 3, 30, 3, True)]
    rewrite = lake.apply(*swap, put("u", 4, 40, 41, True))
    assert lake.rows == {1: (101, "lake 2"), 2: (102, "lake 1"), 30: (103, "lake 3"), 40: (104, None)}
    assert counts(rewrite) == (2, 2, 1)


def test_moved_rows_bring_the_texts_of_what_they_keep() -> None:
    row = row_type(k=pa.int64(), n=pa.decimal128(10, 2), m=pa.decimal128(10, 2))
    lake = Lake(
        [{"k": 1, "__rescued": {"n": "NaN", "m": "1e9"}}], [{"k": 2, "n": 5, "__rescued": {"m": "-1e9"}}], row=row
    )
    lake.apply(
        change("u", 5, 0, {"k": 1}, {"k": 3, "m": Decimal(1)}, ["n"]),
        change("u", 5, 1, None, {"k": 2, "__rescued": {"n": "Infinity"}}, ["m"]),
    )
    found = {each["k"]: (each["n"], each["m"], each["__rescued"]) for each in lake.content.rows}
    assert found == {3: (None, Decimal(1), {"n": "NaN"}), 2: (None, None, {"n": "Infinity", "m": "-1e9"})}


def test_a_truncate_replaces_the_content() -> None:
    lake = Lake(held(1, 2), held(3))
    rewrite = lake.apply(
        put("u", 0, 1), change("t", 10, 1), put("c", 2, 1), put("c", 3, 4), put("u", 4, 4, unsent=True)
    )
    assert counts(rewrite) == (2, 0, 3) and not lake.content.reads
    assert lake.rows == {1: (102, "sent 2"), 4: (104, "sent 3")}
    rewrite = lake.apply(change("t", 20, 1))
    assert counts(rewrite) == (0, 0, 2) and not lake.content.files


def test_deletes_without_an_old_tuple_stop_the_table() -> None:
    with pytest.raises(TableError, match="REPLICA IDENTITY FULL"):
        Lake().prepare(change("d", 10, 0))
    with pytest.raises(TableError, match="REPLICA IDENTITY FULL"):
        Lake(key=()).prepare(put("u", 10, 0))


def test_a_multiset_loses_as_many_rows_as_went() -> None:
    row = row_type(k=pa.int64(), x=pa.float64())
    some = [{"k": 1, "x": 0.0}, {"k": 1, "x": -0.0}, {"k": 1, "x": float("nan")}]
    lake = Lake([*some, *some], [*some, {"k": 2, "x": None}], [{"k": 500, "x": 1.0}], row=row, key=())
    images = [change("d", 10, n, some[0]) for n in range(3)]
    images += [change("u", 10, 4, some[2], {"k": 3, "x": None}), change("d", 10, 5, {"k": 3, "x": None})]
    rewrite = lake.apply(*images)
    assert counts(rewrite) == (1, 0, 5)
    assert {path for path, _ in lake.content.reads} == {"file-1", "file-2"}
    left = sorted(str((each["k"], each["x"])) for each in lake.content.rows)
    assert left == sorted(["(1, -0.0)"] * 3 + ["(1, nan)"] * 2 + ["(2, None)", "(500, 1.0)"])
    assert lake.apply(change("d", 11, 0, {"k": 77, "x": 1.0})).changes_nothing


@pytest.mark.parametrize("copies", [1, 2, 40])
def test_of_a_large_file_without_a_key_only_rows_that_may_match_are_read_whole(copies: int) -> None:
    lake = Lake(key=())
    lake.content.scale = 2**12
    some = [{"v": None if key % 5 == 0 else key % 9, "k": key, "big": f"lake {key}"} for key in range(200)]
    made = [{"__commit_lsn": 1, "__tx_index": -1, "__commit_ts": AT, **each} for each in some * copies]
    lake.content.add(pa.Table.from_pylist(made, schema=lake.content.schema))
    gone = [*some[50:56], {**some[7], "big": "another"}, {**some[8], "v": None}]
    rewrite = lake.apply(*(change("d", 10, number, row) for number, row in enumerate(gone)))
    assert counts(rewrite) == (0, 0, 6) and len(lake.content.rows) == 200 * copies - 6
    left = [row["k"] for row in lake.content.rows]
    assert [left.count(key) for key in (7, 8, 50, 55, 56)] == [copies, copies, copies - 1, copies - 1, copies]
    ((path, first), (_, second), *_) = lake.content.reads
    assert path == "file-1" and first == ("k",) and second is not None and set(second) >= {"k", "v", "big"}
    # Another value of the column that is read first is enough.
    assert lake.apply(change("d", 11, 0, {"k": 700, "v": 1, "big": "lake 1"})).changes_nothing


def test_of_a_large_file_without_a_key_all_is_read_if_no_column_leaves_few_rows() -> None:
    row = row_type(k=pa.int64(), v=pa.bool_(), kind=pa.string())
    lake = Lake(row=row, key=())
    lake.content.scale = 2**13
    some = [{"k": 1, "v": number % 2 == 0, "kind": f"kind {number % 3}"} for number in range(60)]
    made = [{"__commit_lsn": 1, "__tx_index": -1, "__commit_ts": AT, **each} for each in some]
    lake.content.add(pa.Table.from_pylist(made, schema=lake.content.schema))
    assert counts(lake.apply(*(change("d", 10, number, some[number]) for number in range(6)))) == (0, 0, 6)
    left = sorted((each["v"], each["kind"]) for each in lake.content.rows)
    assert left == sorted((each["v"], each["kind"]) for each in some[6:])
    assert [columns for _, columns in lake.content.reads][:3] == [("kind",), ("v",), ("k",)]


def test_keys_of_many_types_match_by_value() -> None:
    kinds = {
        "d": pa.date32(),
        "n": pa.decimal128(38, 10),
        "f": pa.float64(),
        "t": pa.timestamp("us"),
        "b": pa.binary(),
        "o": pa.bool_(),
        "l": pa.list_(pa.float32()),
        "m": pa.map_(pa.string(), pa.string()),
        "s": pa.struct([("x", pa.int32()), ("y", pa.float64())]),
    }
    row = row_type(**kinds, v=pa.string())
    whole = {"d": date(2026, 1, 1), "n": Decimal("1.5"), "f": float("nan"), "t": datetime(1, 1, 1), "b": b"\x00"}
    whole |= {"o": True, "l": [0.0, None], "m": [("a", "1"), ("b", None)], "s": {"x": 1, "y": -0.0}}
    same = {**whole, "l": [-0.0, None], "m": [("b", None), ("a", "1")], "s": {"x": 1, "y": 0.0}}
    # Values that their natural types cannot hold: the rows differ by their texts alone.
    low, high = ({**whole, "d": None, "__rescued": {"d": text}} for text in ("-infinity", "infinity"))
    lake = Lake([{**each, "v": "old"} for each in (whole, low, high)], row=row, key=tuple(kinds))
    moved = {**high, "n": None, "__rescued": {"d": "infinity", "n": "NaN"}}
    rewrite = lake.apply(
        change("u", 10, 0, None, {**same, "v": "new"}),
        change("d", 10, 1, low),
        change("u", 10, 2, high, {**moved, "v": None}, ["v"]),
        change("u", 10, 3, None, {**moved, "v": None}, ["v"]),
    )
    found = {(each["v"], tuple(sorted((each["__rescued"] or {}).items()))) for each in lake.content.rows}
    assert found == {("new", ()), ("old", (("d", "infinity"), ("n", "NaN")))}
    assert counts(rewrite) == (1, 1, 2)


@pytest.mark.parametrize(
    ("kind", "values", "low", "high", "inside"),
    [
        (pa.int64(), [5, 50], 6, 49, False),
        (pa.int64(), [5, 50], 6, 50, True),
        (pa.int16(), [5], 10**6, 10**7, True),  # bounds of another type say nothing
        (pa.string(), ["a", "c"], "aa", "b", False),
        (pa.string(), ["é"], "z", "ê", True),
        (pa.date32(), [date(2026, 1, 1)], date(2026, 1, 2), date(2026, 2, 1), False),
        (pa.decimal128(10, 2), [Decimal("1.50")], Decimal("1.5"), Decimal(2), True),
        (pa.timestamp("us"), [datetime(2026, 1, 1, 0, 0, 0, 900)], datetime(2025, 1, 1), datetime(2026, 1, 1), True),
        (pa.timestamp("us"), [datetime(2026, 1, 1, 0, 0, 0, 1001)], datetime(2025, 1, 1), datetime(2026, 1, 1), False),
        (pa.timestamp("us", "UTC"), [AT], AT.replace(year=2025), AT.replace(microsecond=678000), True),
        (pa.timestamp("us", "UTC"), [AT], AT.replace(year=2027), AT.replace(year=2028), False),
        (pa.float64(), [1.0], 2.0, 3.0, True),  # floats are not pruned by
        (pa.int64(), [5, None], 6, 7, True),  # a rescued value is null and in no statistics
        (pa.int64(), [5], None, 4, True),
        (pa.bool_(), [True], False, False, True),
    ],
)
def test_statistics_leave_out_files(kind: pa.DataType, values: list[Any], low: Any, high: Any, inside: bool) -> None:
    file = DataFile("f", 1, 1, {} if low is None else {"k": low}, {"k": high})
    assert Ranges.of(pa.table({"k": pa.array(values, kind)}), ["k"]).may_be_in(file) is inside


def test_statistics_of_composite_keys_are_held_against_each_row() -> None:
    ranges = Ranges.of(pa.table({"a": [1, 9], "b": ["x", "y"]}), ["a", "b"])
    assert ranges.may_be_in(DataFile("f", 1, 1, {"a": 1, "b": "x"}, {"a": 2, "b": "z"}))
    assert not ranges.may_be_in(DataFile("f", 1, 1, {"a": 1, "b": "y"}, {"a": 2, "b": "z"}))
    assert ranges.may_be_in(DataFile("f", 1, 1, {"a": 0}, {"a": 2}))
