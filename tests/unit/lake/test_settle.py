"""The keys that changes between two snapshots left without a row."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cdc_core.errors import RereadNeededError
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.reduce.surplus_rows import LastStates, changes_between
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.support.spark import change, change_schema, lake_schema, row_type

ROW = row_type(id=pa.int64(), v=pa.string())
TABLE = TableSchema(TableId("public", "t"), 1, (Column("id", PgType(20, "int8")),), primary_key=("id",))
LAKE = lake_schema(ROW)


def table(*changes):
    return pa.Table.from_pylist(list(changes), schema=change_schema(ROW))


def gone(*parts):
    states = LastStates(TABLE, LAKE)
    for part in parts:
        states.add(part)
    found = states.deletes()
    assert set(found.column("__op").to_pylist()) <= {"d"} and not any(found.column("__xid").to_pylist())
    return sorted(row["id"] for row in found.column("before").to_pylist())


def put(op, lsn, key, xid=700):
    return change(op, lsn, 0, None, {"id": key, "v": "x"}, xid=xid)


def drop(lsn, key, xid=700):
    return change("d", lsn, 0, {"id": key, "v": None}, xid=xid)


def moved(lsn, old, new):
    return change("u", lsn, 0, {"id": old, "v": None}, {"id": new, "v": "x"})


def test_deleted_and_left_keys_are_removed_unless_inserted_again():
    first = table(drop(10, 1), drop(11, 2), moved(12, 3, 4), put("u", 13, 5), drop(14, 6))
    second = table(put("c", 20, 2), moved(21, 4, 3), drop(22, 5))
    assert gone(first, second) == [1, 4, 5, 6]
    # The files of a changelog come in any order.
    assert gone(second, first) == [1, 4, 5, 6]
    assert gone() == []


def test_a_truncation_cannot_be_settled():
    with pytest.raises(RereadNeededError):
        gone(table(change("t", 5, 0)))


def test_only_what_one_snapshot_shows_and_the_other_does_not(tmp_path):
    changelog = DeltaTable.create(str(tmp_path / "c"), change_schema(ROW), {})
    rows = table(drop(1, 1, xid=90), drop(2, 2, xid=103), drop(3, 3, xid=120), drop(4, 4, xid=205), drop(5, 5, xid=300))
    changelog.commit([changelog.write(rows.slice(0, 2)), changelog.write(rows.slice(2))])
    found = pa.concat_tables(changes_between(changelog, "100:110:103", "200:210:205"))
    assert sorted(found.column("__xid").to_pylist()) == [103, 120]
