"""Staged rows and plans of ranges: what a task writes is found by every process until it is removed."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_core.errors import TransientError
from cdc_core.lake.stores.range_plans import RangePlan, RangePlans
from cdc_core.lake.stores.staged_rows import StagedFile, StagedRows, read_staged, write_staged
from cdc_core.schema.table import TableId

ORDERS = TableId("shop", "orders")


def batch(*values: object) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(values)})


def write(path: str, *chunks: pa.RecordBatch) -> StagedFile:
    return write_staged(path, iter([("1:1:", 5, each) for each in chunks]), iter(["facts"]))


def test_a_range_is_staged_in_one_commit_and_read_in_parts(tmp_path: Path) -> None:
    path = str(tmp_path / "staged")
    mine, other = StagedRows(path, {}), StagedRows(path, {})
    assert other.look() == []
    mine.create()
    # Rows of tables with other columns are in one table.
    files = [write(path, batch(1, 2), batch(3)), write(path, batch("a"))]
    assert other.look() == [], "a file that was written is not staged"
    for file in files:
        mine.add(file)
    found = {each.rows: each for each in other.look()}
    assert sorted(found) == [1, 3] and found[3].facts == "facts"
    assert [(chunk.place, chunk.rows, chunk.visible, chunk.floor) for chunk in found[3].chunks] == [
        (0, 2, "1:1:", 5),
        (1, 1, "1:1:", 5),
    ]
    assert [each.column("k").to_pylist() for each in read_staged(path, found[3].file, [1])] == [[3]]
    assert [each.column("k").to_pylist() for each in read_staged(path, found[1].file, [0])] == [["a"]]
    other.remove([found[3]])
    other.remove([found[3]])
    assert [each.rows for each in mine.look()] == [1]
    with pytest.raises(TransientError):
        read_staged(path, found[3].file, [0])


def test_a_range_is_one_file_whatever_the_size_of_its_chunks(tmp_path: Path) -> None:
    path = str(tmp_path / "staged")
    staged = StagedRows(path, {})
    staged.create()
    # Values of more than a megabyte begin and end: elsewhere they have files of their own.
    sizes = [10, 12 << 20, 10, 3 << 20, 10, 12 << 20, 10]
    staged.add(write(path, *(batch("x" * size) for size in sizes)))
    (found,) = staged.look()
    assert [chunk.rows for chunk in found.chunks] == [1] * len(sizes)
    for place, size in enumerate(sizes):
        (rows,) = read_staged(path, found.file, [place])
        assert rows.column("k").to_pylist() == ["x" * size]


def test_a_range_takes_the_place_of_another_only_while_that_is_staged(tmp_path: Path) -> None:
    path = str(tmp_path / "staged")
    staged = StagedRows(path, {})
    staged.create()
    first, second, third = (write(path, batch(number)) for number in range(3))
    staged.add(first)
    staged.add(second, instead_of=first)
    assert [each.file.path for each in staged.look()] == [second.file.path]
    staged.add(third, instead_of=first)
    assert [each.file.path for each in staged.look()] == [second.file.path]
    assert len(list((tmp_path / "staged").glob("*.parquet"))) == 1, "no file is left"


def test_a_range_without_rows_is_staged_too(tmp_path: Path) -> None:
    path = str(tmp_path / "staged")
    staged = StagedRows(path, {})
    staged.create()
    staged.add(write(path))
    assert [(each.rows, each.chunks) for each in staged.look()] == [(0, ())]


def test_a_plan_is_kept_by_table_and_key_until_another_replaces_it(tmp_path: Path) -> None:
    plans = RangePlans(str(tmp_path / "plans"), {})
    assert plans.read() == {}
    one = RangePlan("1", ORDERS, 7, ("id",), (("10",), ("20",)), 30)
    other = RangePlan("2", ORDERS, 7, ("a", "b"), (("é", None),), None)
    plans.put(one)
    plans.put(other)
    assert plans.read() == {(ORDERS, ("id",)): one, (ORDERS, ("a", "b")): other}
    assert [one.range(number) for number in range(1, one.count + 1)] == [
        (None, ("10",)),
        (("10",), ("20",)),
        (("20",), None),
    ]
    newer = RangePlan("3", ORDERS, 7, ("id",), (), 3)
    plans.put(newer)
    assert RangePlans(str(tmp_path / "plans"), {}).read()[ORDERS, ("id",)] == newer
    assert newer.range(1) == (None, None)


def test_a_file_that_was_lost_holds_up_no_other_range(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = str(tmp_path / "staged")
    staged = StagedRows(path, {})
    staged.create()
    lost, there = write(path, batch(1)), write(path, batch(2))
    staged.add(lost)
    staged.add(there)
    (tmp_path / "staged" / lost.file.path).unlink()
    for _ in range(2):
        assert [each.file.path for each in staged.look()] == [there.file.path]
    assert caplog.text.count("A staged range is left out") == 1


def test_a_file_that_a_killed_process_left_is_removed_after_a_day(tmp_path: Path) -> None:
    path = str(tmp_path / "staged")
    StagedRows(path, {}).create()
    left, fresh, there = (write(path, batch(number)) for number in range(3))
    StagedRows(path, {}).add(there)
    for written in (left, there):
        os.utime(tmp_path / "staged" / written.file.path, (0, 0))
    StagedRows(path, {}).create()
    found = {file.name for file in (tmp_path / "staged").glob("*.parquet")}
    assert found == {fresh.file.path, there.file.path}
