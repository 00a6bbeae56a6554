"""Versions put between those that a history table has: which files are read, what is done again, what ends where."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.engine.reports import QuarantineReport
from cdc_core.engine.slice.order import Replay
from cdc_core.errors import TableError
from cdc_core.lake.apply.changes import apply, prepare, prepare_placed
from cdc_core.lake.apply.ways import Ways
from cdc_core.lake.delete_columns import as_live
from cdc_core.lake.delete_modes import DeleteMode, DeleteModes
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.schema.lake_schema import lake_schema
from cdc_core.lake.stores.quarantine import refused_among
from cdc_core.quality.options import QualityOptions, UserRule
from tests.delta.source_model import KEYLESS, ROW, TABLE
from tests.support.content import MemoryContent
from tests.support.one_table import OneTable, quarantined
from tests.support.spark import change, change_schema, lake_rows
from tests.support.spark import lake_schema as bare_schema


def image(key: str, **values: Any) -> dict[str, Any]:
    return {"h": 0, "k": key, "v": 1, "big": "b", "num": None, "__rescued": None, **values}


def slice_of(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=change_schema(ROW))


def table_of(keys: str) -> MemoryContent:
    content = MemoryContent(lake_schema(ROW, DeleteMode.HISTORY), scale=2**20)
    for key in keys:
        rows = [{**image(key), "__commit_lsn": 5, "__tx_index": -1}]
        content.add(as_live(pa.Table.from_pylist(rows, schema=bare_schema(ROW)), DeleteMode.HISTORY))
    return content


def follow(content: MemoryContent, *rows: dict[str, Any]) -> None:
    content.commit(apply(content, prepare(slice_of(*rows), TABLE, content.schema)))


def versions(rows: list[dict[str, Any]], key: str) -> list[tuple[Any, ...]]:
    mine = [row for row in rows if row["k"] == key]
    return sorted((row["__valid_from_lsn"], row["__valid_to_lsn"], row["v"], row["big"]) for row in mine)


def test_a_version_goes_between_others_and_only_once() -> None:
    content = table_of("ab")
    for lsn in (10, 20, 30, 40):
        follow(content, change("u", lsn, 0, None, image("a", v=lsn, big=f"big {lsn}")))
    late = slice_of(change("u", 25, 0, None, image("a", v=25, big=None), ["big"]), change("d", 27, 0, image("a")))
    content.reads.clear()
    changes = prepare_placed(late, TABLE, content)
    ended_before = {file.path for file in content.files if file.maximum.get("__valid_to_lsn", 99) < 25}
    others = {file.path for file in content.files if file.maximum["k"] == "b"}
    assert len(ended_before) == 2 and len(others) == 1
    assert not {path for path, _ in content.reads} & (ended_before | others)
    rewrite = apply(content, changes)
    assert (rewrite.inserted, rewrite.updated) == (1, 1)
    assert len(rewrite.removed) == 1
    content.commit(rewrite)
    wanted = [
        (5, 10, 1, "b"),
        (10, 20, 10, "big 10"),
        (20, 25, 20, "big 20"),
        (25, 27, 25, "big 20"),
        (30, 40, 30, "big 30"),
    ]
    assert versions(content.rows, "a") == [*wanted, (40, None, 40, "big 40")]
    assert apply(content, prepare_placed(late, TABLE, content)).changes_nothing


def test_versions_with_changed_ends_are_marked() -> None:
    content = table_of("ab")
    for lsn in (10, 20, 30):
        follow(content, change("u", lsn, 0, None, image("a", v=lsn, big=f"big {lsn}")))
    late = slice_of(change("u", 25, 0, None, image("a", v=25)))
    rewrite = apply(content, prepare_placed(late, TABLE, content), ways=Ways(0))
    assert not rewrite.removed and sum(len(each.places) for each in rewrite.marked) == 1
    content.commit(rewrite)
    wanted = [(5, 10, 1, "b"), (10, 20, 10, "big 10"), (20, 25, 20, "big 20"), (25, 30, 25, "b")]
    assert versions(content.rows, "a") == [*wanted, (30, None, 30, "big 30")]
    assert apply(content, prepare_placed(late, TABLE, content)).changes_nothing
    moved = slice_of(change("u", 27, 0, image("a"), image("c", v=27, big=None), ["big"]))
    content.commit(apply(content, prepare_placed(moved, TABLE, content), ways=Ways(0)))
    assert versions(content.rows, "a")[3:] == [(25, 27, 25, "b"), (30, None, 30, "big 30")]
    assert versions(content.rows, "c") == [(27, None, 27, "b")]


def test_late_changes_of_keys() -> None:
    content = table_of("a")
    follow(content, change("c", 30, 0, None, image("a", v=30)))
    moved = slice_of(change("u", 20, 0, image("a"), image("c", v=20, big=None), ["big"]))
    content.commit(apply(content, prepare_placed(moved, TABLE, content)))
    assert versions(content.rows, "a") == [(5, 20, 1, "b"), (30, None, 30, "b")]
    assert versions(content.rows, "c") == [(20, None, 20, "b")]


def test_late_deletes_of_rows_that_the_table_never_had_change_nothing() -> None:
    content = table_of("a")
    for rows in (slice_of(change("d", 9, 0, image("b"))), slice_of()):
        assert apply(content, prepare_placed(rows, TABLE, content)).changes_nothing


def test_changes_without_a_key_or_an_old_row_stop_the_table() -> None:
    content = table_of("a")
    with pytest.raises(TableError, match="no key, and delete mode history"):
        prepare_placed(slice_of(change("c", 9, 0, None, image("a"))), KEYLESS, content)
    with pytest.raises(TableError, match="do not identify the changed row"):
        prepare_placed(slice_of(change("d", 9, 0)), TABLE, content)


@pytest.fixture
def one(tmp_path: Path) -> OneTable:
    made = OneTable(tmp_path, TABLE, ROW)
    made.tables = replace(made.tables, modes=DeleteModes(DeleteMode.HISTORY))
    made.quality = QualityOptions(quality_rules=(("positive", UserRule("public.items", "after.v >= 0")),))
    return made


def round_(one: OneTable, lsn: int, *rows: tuple[Any, ...]) -> None:
    one.append([{**change(row[0], lsn, index, *row[1:]), "__lsn": lsn} for index, row in enumerate(rows)], lsn)
    one.merge(lsn)


def statuses(one: OneTable) -> list[str]:
    return sorted(row["status"] for row in lake_rows(one.paths.quarantine(TABLE.id)))


def test_a_version_that_left_nothing_ends_at_the_truncate_or_delete(one: OneTable) -> None:
    round_(one, 10, ("c", None, image("a")), ("c", None, image("b", v=-1)), ("c", None, image("c", v=-1)))
    round_(one, 20, ("d", image("b")))
    round_(one, 30, ("t",))
    assert statuses(one) == ["superseded"] * 2
    outcome = one.merge(31, replay=Replay(accept_all=True))
    assert (quarantined(outcome), one.lake_position.lsn) == (QuarantineReport(replayed=2), 31)
    assert [versions(one.rows, key) for key in "abc"] == [[(10, 30, 1, "b")], [(10, 20, -1, "b")], [(10, 30, -1, "b")]]


def test_a_replay_comes_before_changes_that_are_not_merged_yet(one: OneTable) -> None:
    round_(one, 10, ("c", None, image("a")), ("u", None, image("a", v=-2)))
    one.append([change("u", 20, 0, None, image("a", v=3))], 20)
    outcome = one.merge(20, replay=Replay(accept_all=True))
    assert (quarantined(outcome), one.lake_position.lsn) == (QuarantineReport(replayed=1), 20)
    assert versions(one.rows, "a") == [(10, 10, 1, "b"), (10, 20, -2, "b"), (20, None, 3, "b")]


def test_a_first_merge_during_a_replay(one: OneTable) -> None:
    one.append([change("c", 9, 0, None, image("a")), change("c", 10, 0, None, image("b", v=-1))], 10)
    assert quarantined(one.merge(10, replay=Replay(accept_all=True))).waiting == 1
    assert [row["k"] for row in one.rows] == ["a"]


def test_superseded_changes_are_dropped_too(one: OneTable) -> None:
    round_(one, 10, ("c", None, image("a")), ("u", None, image("a", v=-2)), ("u", None, image("a", v=3)))
    round_(one, 20, ("c", None, image("b", v=-1)))
    outcome = one.merge(21, replay=Replay(drop=True))
    assert quarantined(outcome) == QuarantineReport(dropped=2)
    assert statuses(one) == ["dropped"] * 2
    # The lake is as if it had the one that was superseded; the other is missing in it.
    quarantine = DeltaTable.open(one.paths.quarantine(TABLE.id))
    assert quarantine is not None
    places = one.changes([change("u", 10, 1), change("c", 20, 0)])
    assert refused_among(places, quarantine, 0).tolist() == [False, True]
    assert quarantined(one.merge(22, replay=Replay(accept_all=True))).replayed == 0


def test_a_superseded_change_that_the_changelog_has_no_more_stays_as_it_is(one: OneTable) -> None:
    round_(one, 10, ("c", None, image("a")), ("u", None, image("a", v=-2)), ("u", None, image("a", v=3)))
    round_(one, 20, ("c", None, image("b", v=-1)))
    changelog = one.open_changelog()
    gone = [file for file in changelog.files if file.maximum["__commit_lsn"] == 10]
    changelog.commit([], gone)
    outcome = one.merge(21, replay=Replay(accept_all=True))
    assert quarantined(outcome) == QuarantineReport(replayed=1)
    assert statuses(one) == ["replayed", "superseded"]
    assert versions(one.rows, "b") == [(20, None, -1, "b")]
