"""Deletion vectors: their bytes, their place in the log, commits with them, and what cleaning leaves."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable as RawTable
from deltalake import QueryBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from cdc_core.errors import CommitConflictError, InvariantError, LakeError
from cdc_core.lake.delta.data_file import MarkedRows
from cdc_core.lake.delta.deletion_vectors import (
    DeletionVector,
    as_bitmap,
    as_places,
    decoded,
    encoded,
    vector_file,
    vector_in,
)
from cdc_core.lake.delta.row_count import row_count
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.cleaning import clean, vacuum
from cdc_core.lake.maintenance.compaction import compact
from tests.support.deletion_vectors import mark_deleted

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("__commit_lsn", pa.int64())])
PLACES = st.lists(st.one_of(st.integers(0, 300), st.integers(0, 2**33)), max_size=60)


def rows(ids: range | list[int]) -> pa.Table:
    return pa.table({"id": list(ids), "v": [f"v{each}" for each in ids], "__commit_lsn": [7] * len(ids)}, SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    made = DeltaTable.create(str(tmp_path / "t"), SCHEMA, {"delta.checkpointInterval": "5"})
    made.commit([made.write(rows(range(100))), made.write(rows(range(100, 200)))])
    return made


def mark(table: DeltaTable, wanted: dict[int, list[int]], added: list[int] | None = None, **more: int) -> int:
    """Mark rows at places of files, by number in the order of their first id."""
    files = sorted(table.files, key=lambda file: file.minimum["id"])
    marked = [MarkedRows(files[number], np.array(places)) for number, places in wanted.items()]
    new = [table.write(rows(added))] if added else []
    return table.commit(new, marked=marked, txns=more, metadata={"lsn": 5})


def ids(table: DeltaTable) -> list[int]:
    found = [table.read(file, ["id"]).column("id").to_pylist() for file in table.files]
    return sorted(each for part in found for each in part)


def ids_by_delta_rs(path: str) -> list[int]:
    found = QueryBuilder().register("t", RawTable(path)).execute("select id from t order by id").read_all()
    return list(pa.table(found).column("id").to_pylist())


@given(st.one_of(PLACES, st.integers(0, 200_000).map(range)))
@settings(deadline=None)
def test_a_vector_is_restored_from_its_bytes(places: list[int]) -> None:
    bitmap = as_bitmap(np.array(list(places), dtype=np.int64))
    assert as_places(decoded(encoded(bitmap))).tolist() == sorted(set(places))


@given(st.lists(PLACES, min_size=1, max_size=5))
@settings(deadline=None)
def test_each_vector_is_found_in_its_file(every: list[list[int]]) -> None:
    name, content, vectors = vector_file([as_bitmap(np.array(each, dtype=np.int64)) for each in every])
    for each, vector in zip(every, vectors, strict=True):
        assert vector.path == name and vector.cardinality == len(set(each)) and vector.offset is not None
        assert DeletionVector.of_log(json.loads(json.dumps(vector.for_log))) == vector
        assert as_places(vector_in(content[vector.offset :], vector)).tolist() == sorted(set(each))
        damaged = bytearray(content[vector.offset :])
        damaged[7] ^= 1
        with pytest.raises(ValueError, match="damaged"):
            vector_in(bytes(damaged), vector)


def test_the_example_of_deltas_protocol() -> None:
    """ "Deletion Vector Format" and "Derived Fields": the texts of Delta's own specification."""
    inline = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    told = DeletionVector.of_log({"storageType": "i", "pathOrInlineDv": inline, "sizeInBytes": 40, "cardinality": 6})
    assert told.path is None and len(told.inline) == 40
    there = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, 4)
    assert there.path == "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert there.unique_id == "uab^-aqEH.-t@S}K{vb[*k^@4"


def test_rows_are_marked_in_one_commit_with_its_positions(table: DeltaTable) -> None:
    assert not table.marks_rows
    with pytest.raises(InvariantError):
        mark(table, {0: [1]})
    assert table.enable_vectors() and not table.enable_vectors()
    assert mark(table, {0: [3, 5], 1: [0, 99]}, [1000, 1001], app=9) == table.version
    left = [each for each in [*range(200), 1000, 1001] if each not in (3, 5, 100, 199)]
    assert ids(table) == ids_by_delta_rs(table.path) == left
    assert table.txn("app") == 9
    assert table.raw().history(1)[0]["lsn"] == "5"
    mark(table, {0: [0, 5, 99]})
    left = [each for each in left if each not in (0, 99)]
    assert ids(table) == ids_by_delta_rs(table.path) == left
    other = DeltaTable.open(table.path)
    assert other is not None and ids(other) == left and row_count(table.path) == len(left)
    assert len(list(Path(table.path).glob("deletion_vector_*.bin"))) == 2, "one file a commit"
    batches = [each for file in other.files for each in other.batches(file)]
    assert sorted(pa.concat_tables(batches).column("id").to_pylist()) == left


def test_a_file_without_any_row_left_is_removed(table: DeltaTable) -> None:
    table.enable_vectors()
    mark(table, {0: list(range(50))})
    mark(table, {0: list(range(50, 100)), 1: [0]})
    assert len(table.files) == 1 and ids(table) == list(range(101, 200)) == ids_by_delta_rs(table.path)
    mark(table, {0: list(range(100))})
    assert ids(table) == [] == ids_by_delta_rs(table.path)


def test_checkpoints_keep_the_vectors_and_the_log_is_followed(table: DeltaTable) -> None:
    table.enable_vectors()
    reader = DeltaTable.open(table.path)
    assert reader is not None
    left = set(range(200))
    for number in range(23):
        mark(table, {0: [number], 1: [2 * number]}, [1000 + number])
        left = left - {number, 100 + 2 * number} | {1000 + number}
        if number % 4 == 0:
            reader.refresh()
            assert ids(reader) == sorted(left), "followed by single commits"
    log = Path(table.path) / "_delta_log"
    checkpoints = sorted(log.glob("*.checkpoint.parquet"))
    assert len(checkpoints) >= 4
    assert ids_by_delta_rs(table.path) == sorted(left)
    newest = int(checkpoints[-1].name[:20])
    for entry in log.glob("*.json"):
        if int(entry.name[:20]) < newest:
            entry.unlink()
    for opened in (reader, DeltaTable.open(table.path)):
        assert opened is not None
        opened.refresh()
        assert ids(opened) == sorted(left) == ids_by_delta_rs(table.path)


@pytest.mark.parametrize("foreign", [False, True])
def test_what_a_commit_did_is_what_the_log_says(table: DeltaTable, foreign: bool) -> None:
    """Files, vectors and removals are taken over from a commit of our own; a new reader has them from the log."""
    table.enable_vectors()
    chance = np.random.default_rng(3)
    for number in range(14):  # past checkpoints
        alive = sorted(table.files, key=lambda file: file.minimum["id"])
        marked = []
        for file in alive[: chance.integers(1, 4)]:
            live = table.live(file)
            places = np.arange(file.rows) if live is None else np.flatnonzero(live)
            marked.append(MarkedRows(file, places[: max(1, len(places) // 2)] if len(places) > 3 else places))
        if foreign and number % 3 == 0:
            other = DeltaTable.open(table.path)
            assert other is not None
            other.commit([other.write(rows([1_000 + number]))])
            table.refresh()
        table.commit([table.write(rows([200 + number, 300 + number]))], marked=marked, txns={"a": number})
        again = DeltaTable.open(table.path)
        assert again is not None and again.version == table.version
        assert sorted(table.files, key=lambda file: file.path) == sorted(again.files, key=lambda file: file.path)
        assert (table.removed, table.schema, table.txn("a")) == (again.removed, again.schema, number)
        assert ids(table) == ids(again) == ids_by_delta_rs(table.path)


def test_a_second_writer_of_the_same_version_loses(table: DeltaTable) -> None:
    table.enable_vectors()
    other = DeltaTable.open(table.path)
    assert other is not None
    mark(table, {0: [1]})
    before = sorted(each.name for each in (Path(table.path) / "_delta_log").iterdir())
    for attempt in ({0: [1]}, {1: [7]}):
        with pytest.raises(CommitConflictError):
            mark(other, attempt)
    assert sorted(each.name for each in (Path(table.path) / "_delta_log").iterdir()) == before
    other.refresh()
    mark(other, {0: [2]})
    table.refresh()
    assert ids(table) == [each for each in range(200) if each not in (1, 2)]


def test_what_delta_rs_commits_after_a_mark_is_kept_apart(table: DeltaTable) -> None:
    """A file with rows marked is removed with its vector, also by a commit that removes others."""
    table.enable_vectors()
    mark(table, {0: [1]})
    (first, second) = sorted(table.files, key=lambda file: file.minimum["id"])
    table.commit([table.write(rows([5000]))], [first, second], txns={"a": 1})
    assert ids(table) == [5000] == ids_by_delta_rs(table.path)
    mark(table, {0: [0]}, [1, 2])
    table.commit([table.write(rows([3]))], replace=True)
    assert ids(table) == [3] == ids_by_delta_rs(table.path)


def test_columns_are_added_and_rows_replaced_under_another_schema(table: DeltaTable) -> None:
    table.enable_vectors()
    mark(table, {0: [1, 2]})
    wide = pa.schema([*SCHEMA, ("more", pa.float64())])
    table.commit(schema=wide)
    assert table.schema == wide and table.marks_rows
    left = [each for each in range(200) if each not in (1, 2)]
    assert ids(table) == left == ids_by_delta_rs(table.path)
    mark(table, {0: [3]})
    narrow = pa.schema([("id", pa.int64())])
    table.commit([table.write_as(pa.table({"id": [7]}), narrow)], schema=narrow, replace=True)
    assert ids(table) == [7] == ids_by_delta_rs(table.path) and table.marks_rows


def test_compaction_leaves_marked_rows_out(table: DeltaTable) -> None:
    table.enable_vectors()
    for number in range(8):
        table.commit([table.write(rows([1000 + number, 2000 + number]))])
    mark(table, {0: [4], 3: [1]})
    before = ids(table)
    assert compact(table, 8) and ids(table) == before == ids_by_delta_rs(table.path)
    assert all(file.vector is None for file in table.files)


def test_vectors_of_other_writers_are_read_and_added_to(table: DeltaTable) -> None:
    name = mark_deleted(table.path, [3, 17])
    table.refresh()
    (file,) = (each for each in table.files if each.path == name)
    assert file.vector is not None and file.vector.storage == "i" and file.live == 98
    gone = {file.minimum["id"] + 3, file.minimum["id"] + 17}
    assert ids(table) == [each for each in range(200) if each not in gone]
    table.enable_vectors()
    table.commit(marked=[MarkedRows(next(each for each in table.files if each.path == name), np.array([3, 4]))])
    gone.add(file.minimum["id"] + 4)
    assert ids(table) == [each for each in range(200) if each not in gone] == ids_by_delta_rs(table.path)


def test_rows_are_read_by_their_positions(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path / "t"), SCHEMA, {})
    groups = [rows(range(start, start + 100_000)).to_batches()[0] for start in (0, 100_000, 200_000)]
    (file,) = table.write_stream(groups, SCHEMA, 10**6)
    table.commit([file])
    wanted = [0, 99_999, 100_000, 250_000, 299_999]
    assert table.read_at(file, np.array(wanted), ["id"]).column("id").to_pylist() == wanted
    assert table.read_at(file, np.array([], dtype=np.int64)).num_rows == 0


@pytest.mark.parametrize("how", ["missing", "short", "another"])
def test_a_lost_vector_is_an_error_and_never_no_vector(table: DeltaTable, how: str) -> None:
    table.enable_vectors()
    mark(table, {0: [1]})
    (path,) = Path(table.path).glob("deletion_vector_*.bin")
    if how == "missing":
        path.unlink()
    elif how == "short":
        path.write_bytes(path.read_bytes()[:20])
    else:
        path.write_bytes(vector_file([BitMap64([8, 9])])[1])
    other = DeltaTable.open(table.path)
    assert other is not None
    with pytest.raises(LakeError, match="cannot be read"):
        ids(other)


def test_cleaning_keeps_what_is_in_use_and_removes_the_rest(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table.enable_vectors()
    for number in range(6):
        mark(table, {0: [number], 1: [number]})
    (second,) = (file for file in table.files if file.minimum["id"] == 100)
    table.commit([table.write(rows([500]))], [second])
    killed = Path(table.path) / f"deletion_vector_{'0' * 8}-0000-0000-0000-{'0' * 12}.bin"
    killed.write_bytes(b"\x01")
    before = ids(table)

    def names() -> set[str]:
        return {path.name for path in Path(table.path).iterdir() if path.is_file()}

    clean(table, 15)
    assert len(names()) == 3 + 6 + 1, "nothing is old"
    monkeypatch.setattr("cdc_core.lake.maintenance.cleaning.file_minutes", lambda minutes: 0)
    again = DeltaTable.open(table.path)
    assert again is not None
    time.sleep(0.01)
    clean(again, 15)
    used = {file.path for file in again.files} | {file.vector.path for file in again.files if file.vector}
    assert names() == used | {killed.name}, (
        "the data file that was removed with earlier vectors is in use with its last"
    )
    assert ids(again) == before == ids_by_delta_rs(table.path)
    lost = Path(table.path) / "part-lost.zstd.parquet"
    lost.write_bytes(b"")
    vacuum(again, 15, 0)
    assert names() == used
    assert ids(again) == before == ids_by_delta_rs(table.path)


def test_log_entries_say_what_delta_asks_for(table: DeltaTable) -> None:
    table.enable_vectors()
    version = mark(table, {0: [1]}, [9])
    entry = Path(table.path) / "_delta_log" / f"{version:020}.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    (gone,) = (each["remove"] for each in actions if "remove" in each)
    again, new = sorted(
        (each["add"] for each in actions if "add" in each), key=lambda each: "deletionVector" not in each
    )
    assert gone["path"] == again["path"] and "deletionVector" not in gone and gone["extendedFileMetadata"]
    stats = json.loads(again["stats"])
    assert stats["numRecords"] == 100 and stats["tightBounds"] is False and stats["maxValues"]["id"] == 99
    assert "tightBounds" not in json.loads(new["stats"])
    assert again["deletionVector"]["cardinality"] == 1 and again["deletionVector"]["offset"] == 1
    assert len(base64.b85decode("0" * 20)) == 16


def test_rows_are_marked_in_a_file_that_delta_rs_wrote(table: DeltaTable) -> None:
    """Its texts are read as views, from which Arrow cannot select."""
    RawTable(table.path).update({"v": "'other'"}, predicate="id >= 0")
    table.refresh()
    table.enable_vectors()
    mark(table, {0: [0, 2]})
    (file, *_) = sorted(table.files, key=lambda file: file.minimum["id"])
    held = table.read(file)
    assert held.num_rows == table.row_count(file) - 2
    assert pa.concat_tables(table.batches(file)).equals(held)
    assert table.read_at(file, np.array([1, 5])).column("v").to_pylist() == ["other", "other"]
    before = sorted(ids(table))
    compact(table)
    assert sorted(ids(table)) == before
