"""Row ids and commit versions of rows that slices change, in each delete mode and each way of writing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_core.lake.apply.ways import Ways
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.data_file import DataFile, MarkedRows
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.schema.lake_schema import lake_properties, lake_schema
from cdc_core.lake.slice.write import LakeWriter
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.support.spark import AT, change, change_schema, row_type
from tests.support.truncates import applied, prepared

INT8, TEXT = PgType(20, "int8"), PgType(25, "text")
TABLE = TableSchema(
    TableId("public", "t"), 1, (Column("id", INT8, optional=False), Column("v", TEXT)), primary_key=("id",)
)
ROW = row_type(id=pa.int64(), v=pa.string())
ROWS = 6

# (key, position of the event that wrote the row) -> (row id, commit version)
Told = dict[tuple[int, int], tuple[int, int]]


def tracked(folder: Path, mode: DeleteMode) -> DeltaTable:
    """A table of two files with three rows each, in versions 2 and 3."""
    lake = DeltaTable.create(str(folder), lake_schema(ROW, mode), lake_properties(15))
    lake.commit(definition=lake.definition.with_vectors().with_row_tracking())
    state = {DeleteMode.SOFT: {"__deleted": False}, DeleteMode.HISTORY: {"__current": True, "__valid_from_lsn": 1}}
    for keys in (range(3), range(3, ROWS)):
        rows = [
            {"id": key, "v": "read", "__commit_lsn": 1, "__tx_index": -1, "__commit_ts": AT, **state.get(mode, {})}
            for key in keys
        ]
        lake.commit([lake.write(pa.Table.from_pylist(rows, schema=lake.schema))])
    return lake


def told(lake: DeltaTable, files: Any = None) -> Told:
    """By this program's reader, which Spark's agrees with (tests/delta/test_row_tracking)."""
    names = lake.tracked_schema.names
    rows = [row for file in lake.files for row in lake.read(file, names).to_pylist()]
    found = {(row["id"], row["__commit_lsn"]): (row[names[-2]], row[names[-1]]) for row in rows}
    assert len({row_id for row_id, _ in found.values()}) == len(rows)
    return found


def changes(*events: tuple[str, int, int]) -> pa.Table:
    made = []
    for op, key, lsn in events:
        after = {"id": key, "v": f"{op}{lsn}", "__rescued": None}
        before = None if op == "c" else {"id": key, "v": None, "__rescued": None}
        made.append(change(op, lsn, 0, None if op == "t" else before, None if op in "dt" else after))
    return pa.Table.from_pylist(made, schema=change_schema(ROW))


def merge(lake: DeltaTable, rows: pa.Table, ways: Ways) -> None:
    effect = applied(lake, prepared(rows, TABLE, lake.schema), rows, ways)
    lake.commit([lake.write(each) for each in effect.rows], effect.removed, marked=effect.marked)


MOVED = Ways(mark_above=0, moved=lambda marked: {each.file.path for each in marked})
WAYS = [Ways(), Ways(mark_above=0), MOVED]
SLICE = changes(("u", 1, 10), ("d", 4, 11), ("c", 9, 12))


@pytest.mark.parametrize("ways", WAYS, ids=["rewritten", "marked", "moved"])
@pytest.mark.parametrize("mode", list(DeleteMode))
def test_updated_rows_keep_their_ids_and_others_their_versions(tmp_path: Path, mode: DeleteMode, ways: Ways) -> None:
    lake = tracked(tmp_path / "t", mode)
    before = told(lake)
    assert before == {(key, 1): (key, 2 if key < 3 else 3) for key in range(ROWS)}
    merge(lake, SLICE, ways)
    version, wanted = lake.version, {(key, 1): before[key, 1] for key in (0, 2, 3, 5)}
    found = told(lake)
    new = found.pop((9, 12))
    assert new[0] >= ROWS and new[1] == version
    if mode is DeleteMode.HARD:
        wanted |= {(1, 10): (1, version)}
    elif mode is DeleteMode.SOFT:
        wanted |= {(1, 10): (1, version), (4, 11): (4, version)}
    else:  # the versions that ended are the rows that were updated
        begun = found.pop((1, 10))
        assert begun[0] >= ROWS and begun[1] == version
        wanted |= {(1, 1): (1, version), (4, 1): (4, version)}
    assert found == wanted


@pytest.mark.parametrize("mode", [DeleteMode.SOFT, DeleteMode.HISTORY])
def test_rows_that_a_truncate_ends_keep_their_ids(tmp_path: Path, mode: DeleteMode) -> None:
    lake = tracked(tmp_path / "t", mode)
    merge(lake, changes(("u", 2, 10), ("t", 0, 11), ("c", 0, 12)), Ways())
    found, version = told(lake), lake.version
    by_key = {key: row for (key, _), row in found.items() if row[0] < ROWS}
    assert by_key == {key: (key, version) for key in range(ROWS)}, found


def test_a_file_that_is_written_again_without_some_rows_keeps_the_ids_of_the_others(tmp_path: Path) -> None:
    lake = tracked(tmp_path / "t", DeleteMode.HARD)
    before, writer, first = told(lake), LakeWriter(1, 1, str(tmp_path)), lake.files[0].path
    lake.commit(marked=[MarkedRows(lake.files[0], np.array([0]))])
    gone, again = set[int](), list[DataFile]()
    for file in lake.files:
        gone |= set(lake.read_at(file, np.array([0, 1] if file.path == first else [1]), ["id"])["id"].to_pylist())
        again += writer.rewrite(lake, file, np.array([1]))
    lake.commit(again, list(lake.files))
    assert told(lake) == {row: found for row, found in before.items() if row[0] not in gone}


def test_ids_are_read_from_a_checkpoint_and_never_given_twice(tmp_path: Path) -> None:
    lake = tracked(tmp_path / "t", DeleteMode.HARD)
    lake.commit(marked=[MarkedRows(lake.files[0], np.array([1]))])
    merge(lake, SLICE, Ways())
    lake.commit(removed=[file for file in lake.files if lake.read(file, ["id"])["id"].to_pylist()[0] > 2])
    lake.raw().create_checkpoint()
    for entry in (tmp_path / "t" / "_delta_log").glob("*.json"):
        if int(entry.stem) < lake.version:
            entry.unlink()
    again = DeltaTable.open(lake.path)
    assert again is not None and told(again) == told(lake)
    again.commit([again.write(pa.Table.from_pylist([{"id": 77, "__commit_lsn": 20}], schema=again.schema))])
    assert told(again)[77, 20][0] > 9, "the highest id of rows that are gone is not forgotten"


def test_files_of_a_table_that_is_tracked_later_get_ids_in_that_commit(tmp_path: Path) -> None:
    lake = DeltaTable.create(str(tmp_path / "t"), lake_schema(ROW), lake_properties(15))
    for number in range(2):
        rows = [{"id": 2 * number + at, "__commit_lsn": 1} for at in range(2)]
        lake.commit([lake.write(pa.Table.from_pylist(rows, schema=lake.schema))])
    files = {file.path for file in lake.files}
    lake.commit(definition=lake.definition.with_row_tracking())
    assert {file.path for file in lake.files} == files and len(lake.files) == 2
    assert sorted(told(lake).values()) == [(0, 3), (1, 3), (2, 3), (3, 3)]
