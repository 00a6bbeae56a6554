"""Delta tables without a JVM: files and commits, what conflicts, how a table grows and is replaced."""

from __future__ import annotations

import json
import os
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.errors import CommitConflictError, LakeError, MissingRowsError, TransientError, UnreadableError
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.opened import keep, opened
from cdc_core.lake.delta.row_count import held_rows, row_count
from cdc_core.lake.delta.table import DeltaTable
from tests.support.deletion_vectors import mark_deleted
from tests.support.spark import lake_rows

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def rows(*ids: int, name: str | None = "n") -> pa.Table:
    return pa.table({"id": list(ids), "name": pa.array([name] * len(ids), pa.string())}, schema=SCHEMA)


def add(table: DeltaTable, *ids: int, **more: Any) -> int:
    return table.commit([table.write(rows(*ids))], **more)


def ids(table: DeltaTable) -> list[int]:
    found = DeltaTable.open(table.path)
    assert found is not None
    mine = sorted(pa.concat_tables([found.read(file) for file in found.files]).column("id").to_pylist())
    assert mine == sorted(row["id"] for row in lake_rows(table.path)), "delta-rs reads the same"
    return mine


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    return DeltaTable.create(str(tmp_path / "t"), SCHEMA, {"delta.checkpointInterval": "5"})


def again(table: DeltaTable) -> DeltaTable:
    found = DeltaTable.open(table.path)
    assert found is not None
    return found


def test_there_is_no_table_before_it_is_made(tmp_path: Path) -> None:
    path = str(tmp_path / "nothing")
    assert DeltaTable.open(path) is None
    assert not Path(path).exists()
    made = DeltaTable.create(path, SCHEMA, {"delta.checkpointInterval": "7"}, metadata={"by": "test", "none": None})
    assert (made.version, made.files, made.schema) == (0, [], SCHEMA)
    assert made.properties["delta.checkpointInterval"] == "7"
    assert made.txn("app") is None
    # Somebody was faster: theirs is taken.
    other = DeltaTable.create(path, pa.schema([("x", pa.int32())]), {})
    assert (other.version, other.schema) == (0, SCHEMA)
    assert DeltaTable.open(f"file://{path}") is not None


def test_a_log_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    log = tmp_path / "broken" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("nonsense")
    with pytest.raises(LakeError, match="cannot be read"):
        DeltaTable.open(str(tmp_path / "broken"))


def test_a_commit_carries_files_positions_and_a_note(table: DeltaTable) -> None:
    first = table.write(pa.table({"id": [3, 1, None], "name": ["b", "é", None]}, schema=SCHEMA))
    assert (first.rows, dict(first.minimum), dict(first.maximum)) == (3, {"id": 1, "name": "b"}, {"id": 3, "name": "é"})
    assert table.files == [], "a file is nothing before its commit"
    assert table.commit([first], txns={"a": 10, "b": 2}, metadata={"lsn": 7, "none": None}) == 1
    [listed] = again(table).files
    assert (listed.path, listed.size, listed.rows) == (first.path, first.size, 3)
    assert dict(listed.minimum) == {"id": 1, "name": "b"} and dict(listed.maximum) == {"id": 3, "name": "é"}
    assert (again(table).txn("a"), table.txn("b"), table.txn("c")) == (10, 2, None)
    note = table.raw().history(1)[0]
    assert note["lsn"] == "7" and "none" not in note
    # Positions may stay, go down, or come without files.
    assert table.commit(txns={"a": 4}) == 2
    assert again(table).txn("a") == 4 and len(again(table).files) == 1


def test_positions_outlast_checkpoints(table: DeltaTable) -> None:
    for number in range(1, 13):
        add(table, number, txns={"a": number})
    assert list(Path(table.path, "_delta_log").glob("*.checkpoint*.parquet"))
    for log in sorted(Path(table.path, "_delta_log").glob("*.json"))[:6]:
        log.unlink()
    found = again(table)
    assert (found.version, found.txn("a"), ids(found)) == (12, 12, list(range(1, 13)))


def test_a_file_that_goes_is_replaced_in_the_same_commit(table: DeltaTable) -> None:
    add(table, 1, 2)
    add(table, 3)
    gone = next(file for file in table.files if file.rows == 2)
    table.commit([table.write(rows(2, 9))], [gone])
    assert ids(table) == [2, 3, 9]


def test_the_later_of_two_commits_with_one_position_conflicts(table: DeltaTable) -> None:
    other = again(table)
    assert add(table, 1, txns={"a": 10}) == 1
    with pytest.raises(CommitConflictError) as caught:
        add(other, 1, txns={"a": 10})
    assert isinstance(caught.value, TransientError)
    assert ids(table) == [1]
    other.refresh()
    assert other.txn("a") == 10
    assert add(other, 2, txns={"a": 11}) == 2
    assert ids(table) == [1, 2]


def test_a_conflict_is_found_several_commits_later(table: DeltaTable) -> None:
    other = again(table)
    add(table, 1, txns={"a": 10, "b": 1})
    for number in range(2, 8):
        add(table, number, txns={"b": number})
    with pytest.raises(CommitConflictError):
        add(other, 1, txns={"c": 1, "a": 10})
    assert ids(table) == list(range(1, 8))


def test_rows_are_absent_only_in_the_newest_version(table: DeltaTable) -> None:
    """A version that was only expected to be the newest lacks what another worker has written."""
    other, versions = again(table), list[int]()

    def needs(number: int) -> int:
        versions.append(other.version)
        if len(other.files) < number:
            raise MissingRowsError("t", 1, 5)
        return other.version

    add(table, 1)
    assert on_conflict(lambda: needs(1), other) == 1
    with pytest.raises(MissingRowsError):
        on_conflict(lambda: needs(2), other)
    assert versions == [0, 1, 1]


@pytest.mark.parametrize("data_change", [True, False])
def test_the_later_of_two_commits_that_remove_one_file_conflicts(table: DeltaTable, data_change: bool) -> None:
    """Whether the first changed rows or put files together, as somebody's OPTIMIZE does."""
    add(table, 1, 2)
    other = again(table)
    [file] = table.files
    table.commit([table.write(rows(1, 2))], [file], data_change=data_change)
    with pytest.raises(CommitConflictError):
        other.commit([other.write(rows(2))], [file], txns={"a": 1})
    assert ids(table) == [1, 2] and again(table).txn("a") is None


def test_a_commit_that_removes_files_has_seen_all_others(table: DeltaTable) -> None:
    add(table, 1)
    other = again(table)
    add(table, 2)
    with pytest.raises(CommitConflictError):
        other.commit([other.write(rows(9))], other.files)
    other.refresh()
    other.commit([other.write(rows(9))], other.files)
    assert ids(table) == [9]


def test_an_append_passes_by_appends_and_compactions_of_others(table: DeltaTable) -> None:
    add(table, 1)
    add(table, 2)
    late = again(table)
    add(table, 3, txns={"a": 1})
    table.commit([table.write(rows(1, 2, 3))], table.files, data_change=False)
    assert add(late, 4, txns={"b": 1}) == 5
    assert ids(table) == [1, 2, 3, 4]


def test_a_replacement_conflicts_with_what_names_one_of_its_positions(table: DeltaTable) -> None:
    add(table, 1)
    other, late = again(table), again(table)
    add(table, 2, txns={"lake": 5})
    with pytest.raises(CommitConflictError):
        other.commit([other.write(rows(9))], txns={"snapshot": 1, "lake": 0}, schema=SCHEMA, replace=True)
    assert ids(table) == [1, 2]
    other.refresh()
    other.commit([other.write(rows(9))], txns={"snapshot": 1, "lake": 5}, schema=SCHEMA, replace=True)
    with pytest.raises(CommitConflictError):
        add(late, 3, txns={"lake": 6})
    assert ids(table) == [9]


def test_a_table_grows_inside_structs_too(tmp_path: Path) -> None:
    narrow = pa.schema([("id", pa.int64()), ("after", pa.struct([("a", pa.int32())]))])
    table = DeltaTable.create(str(tmp_path / "t"), narrow, {})
    table.commit([table.write(pa.table({"id": [1], "after": [{"a": 7}]}, schema=narrow))])
    wide = pa.schema([*narrow.remove(1), ("after", pa.struct([("a", pa.int32()), ("b c", pa.timestamp("us"))]))])
    version = table.version
    table.commit(schema=wide)
    assert table.schema.equals(wide) and table.version > version
    table.commit([table.write(pa.table({"id": [2], "after": [{"a": 8, "b c": datetime(1400, 1, 1)}]}, schema=wide))])
    found = sorted(lake_rows(table.path), key=lambda row: row["id"])
    assert [row["after"] for row in found] == [{"a": 7, "b c": None}, {"a": 8, "b c": datetime(1400, 1, 1)}]
    mine = pa.concat_tables([table.read(file) for file in table.files])
    assert sorted(mine.to_pylist(), key=lambda row: row["id"]) == found


def test_another_shape_replaces_content_and_schema_at_once(table: DeltaTable) -> None:
    add(table, 1, 2)
    other = pa.schema([("id", pa.string()), ("at", pa.timestamp("us")), ("on", pa.date32())])
    made = pa.table({"id": ["x"], "at": [datetime(1400, 1, 1)], "on": [date(1, 1, 1)]}, schema=other)
    files = table.write_stream(made.to_batches(), other, 10)
    table.commit(files, txns={"snapshot": 3}, schema=other, replace=True)
    found = again(table)
    assert found.schema.equals(other) and found.txn("snapshot") == 3 and len(found.files) == 1
    assert lake_rows(table.path) == made.to_pylist()
    [file] = found.files
    assert file.minimum["on"] in (date(1, 1, 1), "0001-01-01")
    assert found.read(file).equals(made)


def test_columns_are_read_alone_and_missing_ones_are_null(table: DeltaTable) -> None:
    add(table, 1)
    table.commit(schema=pa.schema([*SCHEMA, ("more", pa.list_(pa.int16()))]))
    [file] = table.files
    assert table.read(file, ["more", "id"]).to_pylist() == [{"more": None, "id": 1}]


def test_a_stream_of_batches_becomes_files_of_the_size_asked_for(table: DeltaTable) -> None:
    batches = [rows(*range(start, start + 100)).to_batches()[0] for start in range(0, 1000, 100)]
    files = table.write_stream(batches, SCHEMA, 300, name="snapshot")
    assert sum(file.rows for file in files) == 1000
    assert all(file.path.startswith("snapshot-") for file in files)
    assert (files[0].minimum["id"], files[-1].maximum["id"]) == (0, 999)
    table.commit(files)
    assert ids(table) == list(range(1000))
    assert table.write_stream([], SCHEMA, 300) == []


def test_statistics_are_such_as_every_reader_knows(table: DeltaTable) -> None:
    add(table, 5, 6)
    entry = [json.loads(line) for line in Path(table.path, "_delta_log", f"{1:020}.json").read_text().splitlines()]
    stats = json.loads(next(action["add"]["stats"] for action in entry if "add" in action))
    assert stats == {
        "numRecords": 2,
        "minValues": {"id": 5, "name": "n"},
        "maxValues": {"id": 6, "name": "n"},
        "nullCount": {},
    }


def test_an_instant_and_a_local_time_keep_their_kinds(tmp_path: Path) -> None:
    schema = pa.schema([("tz", pa.timestamp("us", tz="UTC")), ("ntz", pa.timestamp("us"))])
    table = DeltaTable.create(str(tmp_path / "t"), schema, {})
    assert "timestampNtz" in table.features and not table.has_deletion_vectors
    at = datetime(1, 1, 1, 0, 0, 0, 1)
    table.commit([table.write(pa.table({"tz": [at.replace(tzinfo=UTC)], "ntz": [at]}, schema=schema))])
    assert lake_rows(table.path) == [{"tz": at.replace(tzinfo=UTC), "ntz": at}]


def test_a_run_keeps_its_tables_open_and_sees_what_others_commit(table: DeltaTable) -> None:
    found = opened("run", table.path)
    assert found is not None and opened("run", table.path) is found
    add(table, 1, txns={"a": 1})
    assert found.txn("a") is None
    assert opened("run", table.path) is found and found.txn("a") == 1
    # Another run opens anew: in between the table may have been another one.
    assert opened("later", table.path) is not found
    assert keep("run", found) is found and opened("later", table.path) is not found


def test_rows_marked_as_deleted_are_not_read_and_leave_with_their_file(table: DeltaTable) -> None:
    add(table, *range(5000))
    mark_deleted(table.path, [0, 2047, 2048, 4999])
    table = again(table)
    (file,) = table.files
    left = [number for number in range(5000) if number not in (0, 2047, 2048, 4999)]
    assert table.has_deletion_vectors and ids(table) == left
    parts = list(table.batches(file))
    assert len(parts) > 2 and pa.concat_tables(parts).equals(table.read(file))
    assert held_rows(table) == row_count(table.path) == 4996
    add(table, 7000)
    (other,) = [each for each in table.files if each.path != file.path]
    table.commit([table.write(rows(7001))], [other])
    assert ids(table) == [*left, 7001]
    # A file is another one with its vector: a removal that does not name the vector would leave 4996 rows.
    table.commit([table.write(rows(1))], [file])
    assert ids(again(table)) == [1, 7001]
    table.commit([table.write(rows(1, 2))], replace=True)
    assert ids(table) == [1, 2] and held_rows(table) == 2
    table.commit(replace=True)
    assert not lake_rows(table.path)


@pytest.mark.parametrize("damage", ["removed", "cut"])
def test_a_damaged_file_is_unreadable_however_it_is_read(table: DeltaTable, damage: str) -> None:
    add(table, *range(100))
    (file,) = table.files
    path = Path(table.path) / file.path
    path.unlink() if damage == "removed" else path.write_bytes(path.read_bytes()[:50])
    for read in (table.read, lambda each: list(table.batches(each)), table.bytes_in_memory):
        with pytest.raises(UnreadableError):
            read(file)


def test_a_file_with_a_damaged_page_is_unreadable(table: DeltaTable) -> None:
    add(table, *range(100))
    (file,) = table.files
    path = Path(table.path) / file.path
    data = path.read_bytes()
    path.write_bytes(data[:4] + bytes(50) + data[54:])
    for read in (table.read, lambda each: list(table.batches(each))):
        with pytest.raises(UnreadableError):
            read(file)


def test_commits_of_our_own_are_not_loaded_and_the_log_may_forget_them(tmp_path: Path) -> None:
    """delta-rs' object stays behind; what it would tell is known, and it catches up where others committed."""
    schema = pa.schema([("id", pa.int64())])
    table = DeltaTable.create(str(tmp_path / "t"), schema, {})
    loaded = table._loaded.facts.version()
    for number in range(5):
        table.commit([table.write(pa.table({"id": [number]}, schema))], txns={"a": number})
    assert (table.version, table._loaded.facts.version()) == (5, loaded)
    assert (table.txn("a"), table.txn("b"), len(table.files)) == (4, None, 5)
    other = DeltaTable.open(table.path)
    assert other is not None
    assert sorted(other.files, key=lambda file: file.path) == sorted(table.files, key=lambda file: file.path)
    other.raw().create_checkpoint()
    for version in range(5):
        (tmp_path / "t" / "_delta_log" / f"{version:020}.json").unlink()
    other.commit([], [file for file in other.files if file.minimum["id"] == 0], txns={"b": 7})
    table.refresh()
    assert (table.version, table.txn("a"), table.txn("b"), len(table.files)) == (6, 4, 7, 4)
    # An append goes on after another writer's; a removal does not.
    late = DeltaTable.open(table.path)
    assert late is not None
    table.commit([table.write(pa.table({"id": [6]}, schema))])
    late.commit([late.write(pa.table({"id": [7]}, schema))])
    table.refresh()
    assert table.version == late.version == 8 and sorted(row["id"] for row in lake_rows(table.path)) == [
        1,
        2,
        3,
        4,
        6,
        7,
    ]
    stale = DeltaTable.open_version(table.path, 7)
    assert stale is not None
    with pytest.raises(CommitConflictError):
        stale.commit([], [stale.files[0]])


def test_a_log_never_has_a_file_that_disappears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that lists the log between two commits would fail at it."""
    schema = pa.schema([("id", pa.int64())])
    table = DeltaTable.create(str(tmp_path / "t"), schema, {})
    link, listed = os.link, list[str]()

    def slowly(*given: Any) -> None:
        listed.extend(table.folder.names("_delta_log"))
        link(*given)

    monkeypatch.setattr(os, "link", slowly)
    table.commit([table.write(pa.table({"id": [1]}, schema))])
    assert listed == [f"{0:020}.json"]
    assert not list((tmp_path / "t").rglob("*.tmp"))
    # One that does is left out.
    (tmp_path / "t" / "gone").symlink_to(tmp_path / "nowhere")
    assert "gone" not in table.folder.names("")
