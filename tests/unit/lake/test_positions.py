"""What a table's own commits say about how far it is, and that no append is lost or doubled by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.errors import InvariantError, TableError
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.positions import COMPLETE, changelog_position
from cdc_core.lake.stores.changelog import read_changes
from cdc_core.lake.stores.snapshot_log import SnapshotLog, TakenSnapshot
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from tests.delta.source_model import ROW, TABLE
from tests.support.one_table import OneTable
from tests.support.spark import change, lake_rows

T = TABLE.id


def put(lsn: int, index: int, key: str, op: str = "c", xid: int = 700, **values: Any) -> dict[str, Any]:
    row = {"h": 0, "k": key, "v": 1, "big": "b", "num": None, "__rescued": None, **values}
    return change(op, lsn, index, None, row, (), xid)


@pytest.fixture
def one(tmp_path: Path) -> OneTable:
    return OneTable(tmp_path, TABLE, ROW)


def test_changelog_positions_through_an_unfinished_transaction(one: OneTable) -> None:
    assert one.changelog_position is None
    one.append([put(10, 0, "a"), put(10, 1, "b")], None, (10, 1))
    assert one.changelog_position == (10, 1)
    one.append([put(10, 2, "c")], None, (10, 2))
    assert one.changelog_position == (10, 2)
    one.append([put(10, 3, "d"), put(12, 0, "e"), put(15, 0, "f"), put(15, 1, "g")], 12, (15, 1))
    assert one.changelog_position == (15, 1)
    one.append([put(15, 2, "h")], 15)
    assert one.changelog_position == (15, COMPLETE)
    # A transaction that is there whole takes nothing more, and an append of known rows makes no version.
    version = one.open_changelog().version
    assert one.append([put(15, 3, "i")], 15) == 0
    assert one.open_changelog().version == version
    assert len(lake_rows(one.changelog)) == 8
    # Another slot knows nothing of it.
    assert changelog_position(DeltaTable.open(one.changelog), "other", T) is None


def test_an_append_takes_only_what_lies_beyond_the_position(one: OneTable) -> None:
    one.append([put(10, 0, "a"), put(12, 0, "b")], 10, (12, 0))
    assert one.append([put(9, 0, "x"), put(10, 0, "a"), put(12, 0, "b"), put(12, 1, "c"), put(14, 0, "d")], 14) == 2
    assert one.events == [(10, 0), (12, 0), (12, 1), (14, 0)]


def test_a_commit_shows_its_position_as_postgresql_does(one: OneTable) -> None:
    one.snapshot(0, [])
    one.append([put(10, 0, "a")], 10)
    one.merge(10)
    log = sorted((Path(one.lake) / "_delta_log").glob("*.json"))
    assert json.loads(log[-1].read_text().splitlines()[0])["commitInfo"]["lsn"] == "0/A"


def test_a_new_snapshot_forgets_the_merges_into_the_old_one(one: OneTable) -> None:
    def snapshot(token: int, *keys: str) -> Any:
        return one.snapshot(token, [put(0, 0, key)["after"] for key in keys], lsn=5)

    assert one.lake_position == (None, None)
    assert snapshot(3, "a", "b", "c").rows == 3
    assert one.lake_position == (3, None)
    one.append([put(10, 0, "d", v=4)], 10)
    assert one.merge(10, token=3).applied is not None
    assert one.lake_position == (3, 10)
    with pytest.raises(InvariantError, match="not newer"):
        snapshot(3, "a")
    assert snapshot(4, "a").rows == 1
    assert one.lake_position == (4, None)
    assert [row["k"] for row in one.rows] == ["a"]
    assert one.merge(10, token=4).applied is not None
    assert sorted(row["k"] for row in one.rows) == ["a", "d"]


def test_the_overlap_of_a_snapshot_is_decided_by_visibility(one: OneTable) -> None:
    # Transaction 700 was visible to the snapshot, 699 and 702 were not, though 699 committed below the snapshot's LSN.
    one.snapshot(1, [put(0, 0, key, v=7)["after"] for key in "ab"], lsn=50)
    gone = {"h": 0, "k": "b"}
    stream = [
        put(40, 0, "a", xid=700, v=0),
        put(41, 0, "a", "u", 699, v=8),
        put(42, 0, "c", xid=702, v=9),
        change("d", 60, 0, gone, None, (), 703),
    ]
    one.append(stream, 60)
    facts = one.merge(60, token=1, visible="699:702:699,701").applied
    assert facts is not None and (facts.events, facts.inserted, facts.updated, facts.deleted) == (3, 1, 1, 1)
    assert sorted((row["k"], row["v"]) for row in one.rows) == [("a", 8), ("c", 9)]
    assert read_changes(one.open_changelog(), 40, 60).num_rows == 3
    # Past the overlap an older change never overwrites a newer row.
    one.append([put(70, 0, "a", "u", v=1)], 70)
    lake = DeltaTable.open(one.lake)
    assert lake is not None
    rows = pa.concat_tables([lake.read(file) for file in lake.files])
    at = rows.schema.get_field_index("__commit_lsn")
    newer = rows.set_column(at, rows.schema.field(at), pa.array([80] * rows.num_rows))
    lake.commit([lake.write(newer)], lake.files)
    assert one.merge(70, token=1).merged == 70
    assert sorted((row["k"], row["v"]) for row in one.rows) == [("a", 8), ("c", 9)]


def test_snapshots_are_remembered_by_table_and_token(tmp_path: Path) -> None:
    path, other = str(tmp_path / "snapshots"), TableId("public", "other")
    assert SnapshotLog(path).read() == {}
    first, second = TakenSnapshot(5, Lsn(5), "1:2:"), TakenSnapshot(6, Lsn(5), "1:3:1")
    SnapshotLog(path).add({T: first, other: first})
    SnapshotLog(path).add({T: second})
    assert SnapshotLog(path).read() == {(T, 5): first, (other, 5): first, (T, 6): second}


def test_changes_without_an_old_row_stop_the_table(one: OneTable) -> None:
    one.append([change("d", 10, 0)], 10)
    with pytest.raises(TableError, match="REPLICA IDENTITY FULL"):
        one.merge(10)
    assert one.rows == [] and one.lake_position == (None, None)


def test_reads_keep_the_order_of_the_stream_and_leave_out_files_beyond(one: OneTable) -> None:
    one.append([put(10, 0, "a"), put(12, 0, "b")], 12)
    one.append([put(14, 0, "c"), put(14, 1, "d")], 14)
    changelog = one.open_changelog()
    found = read_changes(changelog, 10, 14)
    assert found.column("__commit_lsn").to_pylist() == [12, 14, 14]
    asked: list[str] = []
    read = changelog.read
    changelog.read = lambda file, columns=None: (asked.append(file.path), read(file, columns))[1]  # type: ignore[method-assign,assignment]
    assert read_changes(changelog, 12, 14).num_rows == 2 and len(asked) == 1
    assert read_changes(changelog, 0, 9).num_rows == 0 and len(asked) == 1
