"""Rows are moved to new files while others write: none is lost, none comes back, and passes stay small."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core.lake.delete_columns import TO_LSN
from cdc_core.lake.delta.data_file import DataFile, MarkedRows
from cdc_core.lake.delta.deletion_vectors import DeletionVector
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.compaction import compact, maintain_after, renew
from cdc_core.lake.maintenance.moving import MovedPart, move
from cdc_core.lake.maintenance.wear import worn, worn_parts
from cdc_core.lake.schema.lake_schema import lake_properties
from cdc_core.lake.write.maintain import Retention, maintain
from tests.support.sampling import examples
from tests.support.spark import lake_rows

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


def rows(ids: Sequence[int]) -> pa.Table:
    return pa.table({"id": list(ids), "text": [f"text {number}" for number in ids]}, schema=SCHEMA)


def made(path: Path, *files: Sequence[int]) -> DeltaTable:
    table = DeltaTable.create(str(path), SCHEMA, lake_properties(1))
    table.enable_vectors()
    for each in files:
        table.commit([table.write(rows(each))])
    return table


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    return made(tmp_path / "t", range(10), range(10, 30), range(30, 35))


def again(table: DeltaTable) -> DeltaTable:
    found = DeltaTable.open(table.path)
    assert found is not None
    return found


def ids(table: DeltaTable) -> list[int]:
    """What a new reader of ours reads; delta-rs reads the same."""
    found = again(table)
    mine = sorted(number for file in found.files for number in found.read(file, ["id"]).column("id").to_pylist())
    assert mine == sorted(row["id"] for row in lake_rows(table.path))
    return mine


def delete(table: DeltaTable, gone: set[int]) -> None:
    """Mark rows as deleted."""
    marked = []
    for file in table.files:
        held = table.read(file, ["id"], whole=True).column("id").to_numpy()
        live = table.live(file)
        mask = np.isin(held, list(gone)) & (True if live is None else live)
        if mask.any():
            marked.append(MarkedRows(file, np.flatnonzero(mask)))
    if marked:
        table.commit(marked=marked)


def meanwhile(table: DeltaTable, monkeypatch: pytest.MonkeyPatch, work: Callable[[DeltaTable], object]) -> None:
    """Let another writer commit after the rows were read, and before the first attempt to commit the move."""
    write = table.write_stream

    def slowly(*given: Any) -> list[DataFile]:
        found = write(*given)
        work(again(table))
        return found

    monkeypatch.setattr(table, "write_stream", slowly)


def test_whole_files_and_parts_are_moved(table: DeltaTable) -> None:
    delete(table, {3, 12, 13, 29})
    files = {file.rows: file for file in table.files}
    (new,) = move(table, [MovedPart(files[10]), MovedPart(files[20], 2, 15), MovedPart(files[5])]) or []
    assert ids(table) == sorted({*range(35)} - {3, 12, 13, 29})
    assert sorted((file.rows, file.live) for file in table.files) == [(20, 6), (25, 25)]
    assert table.read(new).column("id").to_pylist() == [*range(3), *range(4, 10), *range(14, 25), *range(30, 35)]
    log = Path(table.path, "_delta_log", f"{table.version:020}.json").read_text()
    assert '"dataChange":false' in log and '"dataChange":true' not in log


def test_rows_are_in_the_order_of_their_key_if_it_has_one(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table.commit([table.write(rows([50, 7, 49]))])
    (new,) = move(table, [MovedPart(file) for file in table.files], ["ID"]) or []
    assert table.read(new).column("id").to_pylist() == [*range(8), 7, *range(8, 35), 49, 50]
    table.commit([table.write(rows([3, 1, 2]))])
    file = next(each for each in table.files if each.path != new.path)
    monkeypatch.setattr("cdc_core.lake.maintenance.moving._SORTED_BYTES", 1)
    (new,) = move(table, [MovedPart(file)], ["id"]) or []
    assert table.read(new).column("id").to_pylist() == [3, 1, 2], "too many"
    (new,) = move(table, [MovedPart(new)], ["another"]) or []
    assert table.read(new).column("id").to_pylist() == [3, 1, 2], "no such column"


def test_the_last_part_removes_the_file(table: DeltaTable) -> None:
    file = next(file for file in table.files if file.rows == 20)
    assert move(table, [MovedPart(file, 0, 12)])
    (left,) = [each for each in table.files if each.path == file.path]
    assert move(table, [MovedPart(left, 12, 20)])
    assert file.path not in {each.path for each in table.files}
    assert ids(table) == list(range(35))


@settings(max_examples=examples(40), deadline=None)
@given(
    before=st.sets(st.integers(0, 34), max_size=12),
    first=st.sets(st.integers(0, 34), max_size=12),
    second=st.sets(st.integers(0, 34), max_size=12),
    start=st.integers(0, 19),
    length=st.integers(1, 20),
    key=st.sampled_from([(), ("id",), ("TEXT", "id")]),
)
def test_rows_that_are_deleted_meanwhile_are_deleted_in_the_new_file_too(
    before: set[int],
    first: set[int],
    second: set[int],
    start: int,
    length: int,
    key: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    table = made(tmp_path_factory.mktemp("t"), range(10), range(10, 30), range(30, 35), [99])
    delete(table, before)
    files = [file for file in table.files if file.minimum["id"] != 99]
    parts = [MovedPart(file, start, min(start + length, 20)) if file.rows == 20 else MovedPart(file) for file in files]
    commit, left = table.commit, [first, second]

    def late(*given: Any, **more: Any) -> int:
        if left:
            other = again(table)
            delete(other, left.pop(0))
            other.commit([other.write(rows([200 + len(left)]))])
        return commit(*given, **more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(table, "commit", late)
        done = move(table, parts, key)
    # Where every row of a file was deleted by the first commit, there is no second attempt.
    expected = {*range(35), 99, 201} - before - first
    assert ids(table) == sorted(expected if left else (expected | {200}) - second)
    assert done is not None or {*range(35)} & (before | first | second)


@pytest.mark.parametrize(
    "work",
    [
        lambda other: other.commit([], [other.files[0]]),
        lambda other: other.commit(schema=pa.schema([*SCHEMA, ("more", pa.int32())])),
        lambda other: other.raw().restore(other.version - 1),
    ],
    ids=["removed", "widened", "restored"],
)
def test_a_move_gives_way_and_leaves_no_file(
    table: DeltaTable, monkeypatch: pytest.MonkeyPatch, work: Callable[[DeltaTable], object]
) -> None:
    delete(table, {1, 15, 32})
    meanwhile(table, monkeypatch, work)
    parts = [MovedPart(file) for file in table.files]
    assert move(table, parts) is None
    before = ids(table)
    known = {file.path for file in again(table).files} | {part.file.path for part in parts}
    assert {path.name for path in Path(table.path).glob("*.parquet")} <= known
    assert before == ids(table)


def test_compaction_is_not_undone_by_appends_and_marks(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(other: DeltaTable) -> None:
        delete(other, {4})
        other.commit([other.write(rows([77]))])

    meanwhile(table, monkeypatch, work)
    assert compact(table, 2) == 3
    assert ids(table) == sorted(({*range(35)} | {77}) - {4})
    assert len(table.files) == 2


def file(share: float, path: str = "f", size: int = 1 << 20, rows: int = 1_000) -> DataFile:
    count = int(share * rows)
    return DataFile(path, size, rows, vector=DeletionVector("u", "x", 1, count) if count else None)


def test_files_are_due_between_12_and_20_percent_each_at_its_own_share() -> None:
    names = [f"part-{number}" for number in range(200)]
    assert worn([file(0.119, name) for name in names]) == []
    assert len(worn([file(0.2, name) for name in names])) == 200
    assert 60 < len(worn([file(0.16, name) for name in names])) < 140
    assert worn([DataFile("f", 1, 0)]) == []


def test_a_large_file_is_renewed_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "t", range(10_000))
    delete(table, set(range(0, 10_000, 3)))
    expected = sorted({*range(10_000)} - {*range(0, 10_000, 3)})
    octets, passes = table.files[0].size // 4, 0
    while renew(table, pass_bytes=octets):
        passes += 1
        assert ids(table) == expected
        assert max(each.rows for each in table.files if each.vector is None) < 4_000
    assert passes == 3
    assert all(each.vector is None for each in table.files)


def test_a_table_that_does_not_allow_marks_has_its_file_renewed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path / "t", range(1_000))
    delete(table, set(range(0, 1_000, 3)))
    monkeypatch.setattr(DeltaTable, "marks_rows", property(lambda self: False))
    assert renew(table, pass_bytes=1) and not renew(table, pass_bytes=1)
    assert [each.vector for each in table.files] == [None]
    assert len(ids(table)) == 666


def test_rounds_of_updates_leave_few_files_and_few_marked_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round marks random rows and appends as many: a reader never reads much more than the live rows."""
    table = made(tmp_path / "t", range(2_000), range(2_000, 4_000))
    chance, where = np.random.default_rng(5), {}
    for number in range(120):
        places = {each.path: table.read(each, ["id"], whole=True).column("id").to_numpy() for each in table.files}
        wanted = chance.choice(4_000, 50, replace=False)
        marked = []
        for each in table.files:
            live = table.live(each)
            mask = np.isin(places[each.path], wanted) & (True if live is None else live)
            if mask.any():
                marked.append(MarkedRows(each, np.flatnonzero(mask)))
        since = table.version
        table.commit([table.write(rows(wanted.tolist()))], marked=marked)
        maintain_after(table, since, 0)
        where[number] = (sum(each.rows for each in table.files), len(table.files))
    assert ids(table) == list(range(4_000))
    assert max(read for read, _ in where.values()) <= 1.3 * 4_000
    assert max(count for _, count in where.values()) <= 24


def test_scheduled_maintenance_renews_files_too(table: DeltaTable) -> None:
    delete(table, set(range(10, 20)))
    found = maintain(table.path, Retention(0, 168))
    assert found is not None
    assert ids(table) == [*range(10), *range(20, 35)]
    assert [each.vector for each in again(table).files] == [None]


def test_ended_versions_are_not_mixed_with_rows_that_can_change() -> None:
    class Sizes:
        def bytes_in_memory(self, file: DataFile) -> int:
            return 1

    ended = replace(file(0.5, "ended"), nulls={TO_LSN: 0})
    current = [file(0.4, f"current {number}") for number in range(3)]
    some: Any = Sizes()
    assert [part.file.path for part in worn_parts(some, [*current, ended], 1 << 30)] == ["ended"]
    assert len(worn_parts(some, current, 1 << 30)) == 3
