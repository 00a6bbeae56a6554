"""Positions, change rows, snapshots, ranges and quarantine of different epochs do not meet."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_core.errors import TransientError
from cdc_core.lake.apply.next_content import EPOCH_LSNS, MOST_EARLIER, KeptRows, earlier
from cdc_core.lake.delete_columns import COLUMNS, as_live
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import EpochRows, epoch_of, scope_of, slot_of
from cdc_core.lake.maintenance.retention import DAY_US, expire_changes
from cdc_core.lake.names import EPOCH
from cdc_core.lake.positions import (
    changelog_position,
    content_epoch,
    is_of_earlier_epoch,
    lake_position,
)
from cdc_core.lake.reduce.row_states import Truncation
from cdc_core.lake.reduce.surplus_rows import changes_between
from cdc_core.lake.schema.change_columns import stored, stored_schema
from cdc_core.lake.schema.lake_schema import changelog_properties, ensure_table
from cdc_core.lake.stores.changelog import (
    Reached,
    append_changes,
    count_after,
    cut_within,
    read_changes,
    read_positions,
)
from cdc_core.lake.stores.range_log import FinishedRange, RangeLog
from cdc_core.lake.stores.snapshot_log import SnapshotLog, TakenSnapshot
from cdc_core.lake.write.replace import commit_snapshot, prepare, write_rows
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from tests.delta.source_model import ROW, TABLE
from tests.support.one_table import OneTable
from tests.support.spark import AT, change, change_schema, lake_schema, row_type

SLOT, LATER = "slot", "slot@1"
T = TABLE.id


@pytest.fixture
def one(tmp_path: Path) -> OneTable:
    return OneTable(tmp_path, TABLE, ROW)


def put(lsn: int, key: str, xid: int = 700) -> dict[str, Any]:
    return change("c", lsn, 0, None, {"h": 0, "k": key, "v": 1, "big": "b", "num": None, "__rescued": None}, (), xid)


def append(one: OneTable, scope: str, rows: list[dict[str, Any]], whole: int) -> DeltaTable:
    made = pa.Table.from_pylist(rows, schema=change_schema(one.row))
    held, epoch = DeltaTable.open(one.changelog), epoch_of(scope)
    schema = stored_schema(made.schema, 1, None if held is None else held.schema, epoch)
    changelog = ensure_table(one.changelog, schema, one.table.id, changelog_properties(1), held)
    append_changes(changelog, stored(made, 1, changelog.schema, epoch), scope, one.table.id, Reached(whole))
    return changelog


def lsns(rows: pa.Table) -> list[int]:
    return rows.column("__commit_lsn").to_pylist()


def test_a_scope_names_the_slot_and_the_epoch() -> None:
    assert scope_of("a", 0) == "a" and scope_of("a", 12) == "a@12"
    assert [(slot_of(scope), epoch_of(scope)) for scope in ("a", "a@12")] == [("a", 0), ("a", 12)]


@pytest.mark.parametrize("compacted", [False, True])
def test_a_changelog_is_read_by_epoch(one: OneTable, compacted: bool) -> None:
    append(one, SLOT, [put(50, "a", 900), put(90, "b", 901)], 90)
    # The same positions again: another server's.
    rows = [put(40, "x", 5), put(50, "y", 6)]
    changelog = append(one, LATER, rows, 50)
    if compacted:
        every = pa.concat_tables([changelog.read(file) for file in changelog.files])
        changelog.commit([changelog.write(every)], changelog.files)
    old, new = EpochRows.of(changelog, SLOT), EpochRows.of(changelog, LATER)
    assert lsns(read_changes(old, 0, 100)) == [50, 90] and lsns(read_changes(new, 0, 100)) == [40, 50]
    assert EPOCH not in read_changes(new, 0, 100).schema.names + read_changes(new, 60, 70).schema.names
    assert [row["after"]["k"] for row in read_changes(new, 45, 100).to_pylist()] == ["y"]
    places = pa.table({"__commit_lsn": [50, 90], "__tx_index": [0, 0]})
    assert [row["after"]["k"] for row in read_positions(new, places).to_pylist()] == ["y"]
    assert [row["after"]["k"] for row in read_positions(old, places).to_pylist()] == ["a", "b"]
    assert (count_after(old, 0), count_after(new, 0), count_after(new, 45)) == (2, 2, 1)
    assert cut_within(new, 0, 50, 1) in (40, 50)
    found = list(changes_between(new, "1:1:", "1000:1000:"))
    assert sorted(lsns(pa.concat_tables(found))) == [40, 50]
    assert changelog_position(changelog, SLOT, T) == (90, 2**62 - 1)
    assert changelog_position(changelog, LATER, T) == (50, 2**62 - 1)
    assert changelog_position(changelog, "slot@2", T) is None
    assert read_changes(EpochRows.of(changelog, "slot@2"), 0, 100).num_rows == 0


def test_an_append_again_in_the_new_epoch_adds_nothing(one: OneTable) -> None:
    append(one, SLOT, [put(90, "b")], 90)
    for _ in range(2):
        append(one, LATER, [put(40, "x")], 40)
    assert one.events == [(40, 0), (90, 0)]


def test_old_changes_of_a_former_epoch_expire_whatever_their_position(one: OneTable) -> None:
    append(one, SLOT, [put(900, "b")], 900)
    changelog = append(one, LATER, [put(40, "x"), put(41, "y")], 41)
    now = int(AT.timestamp() * 1e6) + 3 * DAY_US
    assert expire_changes(one.changelog, LATER, T, 40, now, 1) is not None
    changelog.refresh()
    assert one.events == [(41, 0)]  # 41 is not merged


def test_snapshots_are_found_by_epoch_and_a_token_is_used_once(tmp_path: Path) -> None:
    path, other = str(tmp_path / "snapshots"), TableId("public", "other")
    first, second = TakenSnapshot(5, Lsn(5), "1:2:"), TakenSnapshot(5, Lsn(5), "900:901:")
    SnapshotLog(path).add({T: first, other: first})
    SnapshotLog(path, 1).add({T: second})
    assert SnapshotLog(path).read() == {(T, 5): first, (other, 5): first}
    assert SnapshotLog(path, 1).read() == {(T, 5): second}
    assert SnapshotLog(path, 0).former_tokens() == {}
    assert SnapshotLog(path, 1).former_tokens() == {T: {5}, other: {5}}


def test_ranges_of_another_epoch_are_not_continued(tmp_path: Path) -> None:
    path = str(tmp_path / "ranges")
    RangeLog(path, {}).add(T, [FinishedRange(900, 900, "1:2:", "marks", 0, None, ())])
    new = RangeLog(path, {}, 1)
    assert new.read() == {} and list(RangeLog(path, {}).read()) == [T]
    new.add(T, [FinishedRange(40, 40, "1:2:", "marks", 0, 9, ())])
    assert [found.token for found in new.read()[T]] == [40]
    new.clear([T])
    assert new.read() == RangeLog(path, {}).read() == {}


def read(one: OneTable, scope: str, token: int, keys: str) -> None:
    schema = lake_schema(one.row)
    lake = prepare(one.lake, schema, one.table.id, 1)
    at = {"__commit_lsn": token, "__tx_index": -1, "__commit_ts": AT}
    made = pa.Table.from_pylist([{**at, "h": 0, "k": key} for key in keys], schema=schema)
    commit_snapshot(lake, write_rows(lake, made.to_batches(), schema), schema, scope, one.table.id, token=token)


def test_a_lake_table_is_of_one_epoch_and_a_run_of_a_former_one_cannot_write(one: OneTable) -> None:
    read(one, SLOT, 900, "ab")
    one.append([put(950, "c")], 950)
    lake = DeltaTable.open(one.lake)
    assert lake is not None
    assert is_of_earlier_epoch(lake, LATER, T) and not is_of_earlier_epoch(lake, SLOT, T)
    assert lake_position(lake, LATER, T) == (None, None)
    one.held(one.lake)  # the run of the former epoch has the table open
    read(one, LATER, 40, "xy")
    lake.refresh()
    assert (content_epoch(lake, T), lake_position(lake, LATER, T)) == (1, (40, None))
    assert lake_position(lake, SLOT, T) == (None, None) and not is_of_earlier_epoch(lake, LATER, T)
    with pytest.raises(TransientError, match="re-read by another run"):
        one.merge(950, token=900)
    with pytest.raises(TransientError, match="another server"):
        read(one, SLOT, 960, "ab")
    assert sorted(row["k"] for row in one.rows) == ["x", "y"]


@pytest.mark.parametrize("mode", [DeleteMode.SOFT, DeleteMode.HISTORY])
def test_kept_rows_of_a_former_epoch_are_before_everything_of_this_one(mode: DeleteMode) -> None:
    far = pa.array([10, 900, -MOST_EARLIER - 5], pa.int64())
    rows = pa.table({"__commit_lsn": far, "__tx_index": pa.array([0, 1, 2]), "__commit_ts": pa.array([AT] * 3)})
    rows = as_live(rows, mode)
    kept = KeptRows(("k",), Truncation(40, -1, pa.scalar(None, pa.timestamp("us", tz="UTC"))))
    assert earlier(rows, kept) is rows
    once = earlier(rows, replace(kept, epochs=1))
    twice = earlier(once, replace(kept, epochs=1))
    both = earlier(rows, replace(kept, epochs=2))
    assert twice.equals(both)
    assert lsns(once) == [10 - EPOCH_LSNS, 900 - EPOCH_LSNS, -MOST_EARLIER - 5]
    assert once.schema.equals(rows.schema) and once.column("__tx_index").equals(rows.column("__tx_index"))
    for name in {each.name for each in COLUMNS[mode]} & {"__valid_from_lsn"}:
        assert once.column(name).to_pylist() == lsns(once)
        assert once.column("__valid_to_lsn").null_count == 3
    many = earlier(rows, replace(kept, epochs=1000))
    assert bool(np.all(many.column("__commit_lsn").to_numpy() < 0))


def test_a_row_of_the_changelog_has_its_epoch_in_the_file(one: OneTable) -> None:
    append(one, SLOT, [put(90, "b")], 90)
    append(one, LATER, [put(40, "x")], 40)
    changelog = DeltaTable.open(one.changelog)
    assert changelog is not None
    found = pa.concat_tables([changelog.read(file) for file in changelog.files])
    assert sorted(zip(lsns(found), found.column(EPOCH).to_pylist(), strict=True)) == [(40, 1), (90, None)]


def test_row_types_have_no_epoch(one: OneTable) -> None:
    made = stored_schema(change_schema(row_type(id=pa.int32())), 1, None)
    assert EPOCH not in made.names
