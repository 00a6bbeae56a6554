"""What a table's own commits say about how far it is, and that no append is lost or doubled by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.errors import InvariantError, TableError
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from cdc_core.sink.delta.change_slice import read_slice, snapshot_filter
from cdc_core.sink.delta.changelog import append
from cdc_core.sink.delta.commit_log import (
    COMPLETE,
    changelog_position,
    guarded_write,
    lake_position,
    table_version,
)
from cdc_core.sink.delta.merge import Round, merge_round
from cdc_core.sink.delta.rounds import read_rounds, record_round
from cdc_core.sink.delta.snapshot import write_snapshot
from tests.delta.source_model import ROW, TABLE
from tests.support.spark import AT, change, change_schema, frame, lake_rows, lake_schema

pytestmark = pytest.mark.spark
T = TABLE.id
SCHEMA = change_schema(ROW)


def put(lsn: int, index: int, key: str, op: str = "c", xid: int = 700, **values: Any) -> dict[str, Any]:
    row = {"h": 0, "k": key, "v": 1, "big": "b", "num": None, "__rescued": None, **values}
    return change(op, lsn, index, None, row, (), xid)


def test_changelog_positions_through_an_unfinished_transaction(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "changelog")

    def add(complete_to: int | None, *rows: dict[str, Any]) -> None:
        append(frame(spark, rows, SCHEMA), path, "slot", T, complete_to)

    assert changelog_position(spark, path, "slot", T) is None
    add(None, put(10, 0, "a"), put(10, 1, "b"))
    assert changelog_position(spark, path, "slot", T) == (10, 1)
    add(None, put(10, 2, "c"))
    assert changelog_position(spark, path, "slot", T) == (10, 2)
    add(12, put(10, 3, "d"), put(12, 0, "e"), put(15, 0, "f"), put(15, 1, "g"))
    assert changelog_position(spark, path, "slot", T) == (15, 1)
    add(15, put(15, 2, "h"))
    assert changelog_position(spark, path, "slot", T) == (15, COMPLETE)
    # A version that is not above the stored one would be skipped by Delta: it is written without one.
    add(15, put(15, 3, "i"))
    assert len(lake_rows(path)) == 9
    assert changelog_position(spark, path, "other", T) == (15, 3)


def test_a_skipped_append_is_an_error(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "changelog")
    append(frame(spark, [put(10, 0, "a")], SCHEMA), path, "slot", T, 10)
    with pytest.raises(InvariantError, match="skipped"):
        append(frame(spark, [put(9, 0, "b")], SCHEMA), path, "slot", T, 9, position=8)
    with pytest.raises(InvariantError):
        guarded_write(spark, path, "nothing", lambda: None)


def test_a_new_snapshot_forgets_the_merges_into_the_old_one(spark: Any, tmp_path: Path) -> None:
    lake, changelog = str(tmp_path / "lake"), str(tmp_path / "changelog")

    def snapshot(token: int, *keys: str) -> Any:
        rows = [{**put(0, 0, key)["after"], "__commit_lsn": 5, "__tx_index": -1, "__commit_ts": AT} for key in keys]
        return write_snapshot(frame(spark, rows, lake_schema(ROW)), lake, "slot", T, token=token)

    assert lake_position(spark, lake, "slot", T) == (None, None)
    assert snapshot(3, "a", "b", "c").rows == 3
    assert lake_position(spark, lake, "slot", T) == (3, None)
    append(frame(spark, [put(10, 0, "d", v=4)], SCHEMA), changelog, "slot", T, 10)
    assert merge_round(spark, Round("slot", TABLE, changelog, lake, 5, 10, token=3)) is not None
    assert lake_position(spark, lake, "slot", T) == (3, 10)
    with pytest.raises(InvariantError, match="not newer"):
        snapshot(3, "a")
    assert snapshot(4, "a").rows == 1
    assert lake_position(spark, lake, "slot", T) == (4, None)
    assert [row["k"] for row in lake_rows(lake)] == ["a"]
    assert merge_round(spark, Round("slot", TABLE, changelog, lake, 5, 10, token=4)) is not None
    assert sorted(row["k"] for row in lake_rows(lake)) == ["a", "d"]


def test_the_overlap_of_a_snapshot_is_decided_by_visibility(spark: Any, tmp_path: Path) -> None:
    lake, changelog = str(tmp_path / "lake"), str(tmp_path / "changelog")
    # Transaction 700 was visible to the snapshot, 699 and 702 were not, though 699 committed below the snapshot's LSN.
    rows = [{**put(0, 0, key, v=7)["after"], "__commit_lsn": 50, "__tx_index": -1, "__commit_ts": AT} for key in "ab"]
    write_snapshot(frame(spark, rows, lake_schema(ROW)), lake, "slot", T, token=1)
    gone = {"h": 0, "k": "b"}
    stream = [
        put(40, 0, "a", xid=700, v=0),
        put(41, 0, "a", "u", 699, v=8),
        put(42, 0, "c", xid=702, v=9),
        change("d", 60, 0, gone, None, (), 703),
    ]
    append(frame(spark, stream, SCHEMA), changelog, "slot", T, 60)
    todo = Round("slot", TABLE, changelog, lake, 0, 60, token=1, snapshot="699:702:699,701")
    facts = merge_round(spark, todo)
    assert facts is not None and (facts.events, facts.inserted, facts.updated, facts.deleted) == (3, 1, 1, 1)
    assert sorted((row["k"], row["v"]) for row in lake_rows(lake)) == [("a", 8), ("c", 9)]
    assert read_slice(spark, changelog, 40, 60).count() == 3
    # Past the overlap an older change never overwrites a newer row.
    append(frame(spark, [put(70, 0, "a", "u", v=1)], SCHEMA), changelog, "slot", T, 70)
    spark.sql(f"UPDATE delta.`{lake}` SET __commit_lsn = 80 WHERE k = 'a'")
    merge_round(spark, Round("slot", TABLE, changelog, lake, 60, 70, token=1))
    assert sorted((row["k"], row["v"]) for row in lake_rows(lake)) == [("a", 8), ("c", 9)]


@pytest.mark.parametrize("epoch", [0, 1, 5])
def test_visibility_follows_the_xid_through_its_wrap(spark: Any, epoch: int) -> None:
    wrap = 2**32
    xmin, xmax, running = (
        epoch * wrap + wrap - 3,
        epoch * wrap + wrap + 4,
        [epoch * wrap + wrap - 1, epoch * wrap + wrap + 3],
    )
    full = [*range(xmin - 4, xmax + 5)]
    visible = [xid < xmin or (xid < xmax and xid not in running) for xid in full]
    text = f"{xmin}:{xmax}:{','.join(map(str, running))}"
    rows = spark.createDataFrame(
        pa.table({"n": pa.array(range(len(full))), "__xid": pa.array([x % wrap for x in full])})
    )
    kept = {row["n"] for row in rows.filter(snapshot_filter(text)).collect()}
    assert kept == {n for n, seen in enumerate(visible) if not seen}


def test_rounds_are_remembered_once(spark: Any, tmp_path: Path) -> None:
    path, other = str(tmp_path / "rounds"), TableId("public", "other")
    assert read_rounds(spark, path) == []
    record_round(spark, path, 10, {T: 1, other: 5})
    record_round(spark, path, 20, {T: 2})
    record_round(spark, path, 20, {T: 2})
    record_round(spark, path, 30, {})
    found = [(entry.lsn, entry.table, entry.version) for entry in read_rounds(spark, path)]
    assert found == [(Lsn(20), T, 2), (Lsn(10), T, 1), (Lsn(10), other, 5)]
    assert found[0][0] == 20 and len(read_rounds(spark, path, limit=1)) == 1


def test_changes_without_an_old_row_stop_the_table(spark: Any, tmp_path: Path) -> None:
    lake, changelog = str(tmp_path / "lake"), str(tmp_path / "changelog")
    append(frame(spark, [change("d", 10, 0)], SCHEMA), changelog, "slot", T, 10)
    with pytest.raises(TableError, match="REPLICA IDENTITY FULL"):
        merge_round(spark, Round("slot", TABLE, changelog, lake, 0, 10, token=0))
    assert table_version(spark, lake) == -1
