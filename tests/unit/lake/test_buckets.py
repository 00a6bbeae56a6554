"""Dividing rows by the hash of their key: equal keys have one hash, connected keys one part, and no row is lost."""

from __future__ import annotations

import datetime
import decimal
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cdc_core.errors import LostFolderError
from cdc_core.lake.rows.buckets import Buckets, KeyShare
from cdc_core.lake.rows.codes import Tuples
from cdc_core.lake.rows.key_hash import row_hashes

_LONG = "x" * 1000
VALUES = [
    pa.array([1, 2, None, 1, -5, 2**62, 2], pa.int64()),
    pa.array(["a", "", None, "a", _LONG, _LONG + "y", "b" + _LONG], pa.string()),
    pa.array([b"a", b"", None, b"a\x00", b"\x00a"], pa.large_binary()),
    pa.array([0.0, -0.0, float("nan"), -float("nan"), None, 1.5], pa.float64()),
    pa.array([True, False, None, True]),
    pa.array([decimal.Decimal("1.10"), None, decimal.Decimal("-1.10")], pa.decimal128(20, 2)),
    pa.array([datetime.date(2020, 1, 1), None, datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)]),
    pa.array([1, 2, None], pa.timestamp("us", tz="UTC")),
    pa.array([[1, 2], [2, 1], None, [], [1, 2], [None]], pa.list_(pa.int32())),
    pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}, {"a": 1, "b": "x"}]),
    pa.array([[("a", "1"), ("b", "2")], [("b", "2"), ("a", "1")], None, []], pa.map_(pa.string(), pa.string())),
]


@pytest.mark.parametrize("values", VALUES, ids=lambda values: str(values.type))
def test_values_have_one_hash_exactly_where_they_are_one_key(values: pa.Array) -> None:
    hashes = row_hashes([values])
    _, codes = Tuples.number([values])
    for one in range(len(values)):
        for other in range(len(values)):
            assert (hashes[one] == hashes[other]) == (codes[one] == codes[other]), (values[one], values[other])


@pytest.mark.parametrize("values", VALUES, ids=lambda values: str(values.type))
def test_a_hash_does_not_depend_on_where_a_value_lies(values: pa.Array) -> None:
    whole = row_hashes([values, values])
    for at in range(len(values)):
        one = values.slice(at, 1)
        assert row_hashes([one, one])[0] == whole[at]


def test_columns_are_not_interchangeable() -> None:
    one, other = pa.array(["a", "b"]), pa.array(["b", "a"])
    first, second = row_hashes([one, other])
    assert first != second


def rows_of(numbers: np.ndarray) -> pa.Table:
    return pa.table({"key": numbers, "text": ["t" * 50] * len(numbers)})


@pytest.mark.parametrize("most_bytes", [2_000, 100_000, 10_000_000])
def test_every_row_is_in_one_part_in_its_order(tmp_path: Path, most_bytes: int) -> None:
    # Small parts are divided twice also where the rows are few.
    keys = np.arange(20_000 if most_bytes > 2_000 else 5_000)
    keys %= len(keys) // 3 + 1
    buckets = Buckets(tmp_path / "parts", most_bytes)
    for start in range(0, len(keys), 1_000):
        rows = rows_of(keys[start : start + 1_000]).append_column("at", pa.array(np.arange(start, start + 1_000)))
        buckets.add(rows, row_hashes([rows.column("key").chunk(0)]))
    parts = [part.rows for part in buckets.parts()]
    assert sorted(at for part in parts for at in part.column("at").to_pylist()) == list(range(len(keys)))
    seen: set[int] = set()
    for part in parts:
        mine = set(part.column("key").to_pylist())
        assert not mine & seen, "a key in two parts"
        seen |= mine
        of_rows, at = part.column("key").to_numpy(), part.column("at").to_numpy()
        order = np.argsort(of_rows, kind="stable")
        assert (np.diff(at[order])[np.diff(of_rows[order]) == 0] > 0).all()
        assert part.schema.names == ["key", "text", "at"]
    if most_bytes < 1_000_000:
        assert max(part.nbytes for part in parts) < 20 * most_bytes
    buckets.close()
    assert not (tmp_path / "parts").exists()


def test_connected_keys_are_in_one_part_however_long_the_chain(tmp_path: Path) -> None:
    keys = np.arange(5_000)
    hashes = row_hashes([pa.array(keys)])
    buckets = Buckets(tmp_path / "parts", 20_000)
    # A chain of a thousand keys in an order that does not help, and pairs.
    chain = np.random.default_rng(7).permutation(999)
    buckets.add(rows_of(keys), hashes)
    buckets.link(hashes[chain], hashes[chain + 1])
    buckets.link(hashes[2_000:3_000], hashes[3_000:4_000])
    where = {key: number for number, part in enumerate(buckets.parts()) for key in part.rows.column("key").to_pylist()}
    assert len(where) == 5_000
    assert len({where[key] for key in range(1_000)}) == 1
    assert all(where[key] == where[key + 1_000] for key in range(2_000, 3_000))
    assert len(set(where.values())) > 10
    buckets.close()


@pytest.mark.parametrize("most_bytes", [2_000, 10_000_000])
def test_each_row_is_in_one_share_and_connected_keys_are_in_the_same(tmp_path: Path, most_bytes: int) -> None:
    keys = np.arange(3_000)
    hashes = row_hashes([pa.array(keys)])
    pairs = hashes[:1_000], hashes[1_000:2_000]
    owner = np.full(len(keys), -1)
    for number in range(3):
        buckets = Buckets(tmp_path / str(number), most_bytes, KeyShare(number, 3))
        buckets.add(rows_of(keys), hashes)
        buckets.link(*pairs)
        if buckets.connect():
            buckets.add_connected(rows_of(keys), hashes)
        mine = np.concatenate([part.rows.column("key").to_numpy() for part in buckets.parts()])
        assert len(mine) > 500 and (owner[mine] == -1).all() and len(np.unique(mine)) == len(mine)
        owner[mine] = number
        buckets.close()
    assert (owner >= 0).all() and (owner[:1_000] == owner[1_000:2_000]).all()


def test_no_rows_have_no_parts(tmp_path: Path) -> None:
    buckets = Buckets(tmp_path / "parts", 1_000)
    buckets.add(rows_of(np.zeros(0, dtype=np.int64)), np.zeros(0, dtype=np.uint64))
    assert list(buckets.parts()) == []
    buckets.close()


@pytest.mark.parametrize("is_linked", [False, True], ids=["as they are", "linked"])
@pytest.mark.parametrize("what", ["a file", "the folder"])
@pytest.mark.parametrize("most_bytes", [2_000, 10_000_000], ids=["divided", "whole"])
def test_rows_that_somebody_removed_are_missed(tmp_path: Path, most_bytes: int, what: str, is_linked: bool) -> None:
    numbers = np.arange(2_000)
    buckets = Buckets(tmp_path / "rows", most_bytes)
    rows = rows_of(numbers)
    hashes = row_hashes([rows.column("key").combine_chunks()])
    buckets.add(rows, hashes)
    if is_linked:
        buckets.link(hashes[:1], hashes[1:2])
    buckets._files.finish()
    if what == "a file":
        sorted((tmp_path / "rows").rglob("*.arrow"))[0].unlink()
    else:
        shutil.rmtree(tmp_path / "rows")
    with pytest.raises(LostFolderError, match="removed or is not accessible"):
        [part.rows for part in buckets.parts()]
    buckets.close()


def test_a_removed_folder_is_reported_when_rows_are_written(tmp_path: Path) -> None:
    buckets = Buckets(tmp_path / "rows", 2_000)
    shutil.rmtree(tmp_path / "rows")
    rows = rows_of(np.arange(2_000))
    with pytest.raises(LostFolderError, match="removed or is not accessible"):
        buckets.add(rows, row_hashes([rows.column("key").combine_chunks()]))
