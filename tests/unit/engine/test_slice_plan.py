"""Which plan is chosen for a slice, before anything is written; no Spark, no server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cdc_core.errors import TransientError
from cdc_core.lake.delete_modes import DeleteMode, DeleteModes
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.rows.shown import Reached
from cdc_core.lake.slice.append import Appended
from cdc_core.lake.slice.lake_merge import LakeMerge
from cdc_core.lake.slice.order import Replay, SliceOrder, WrittenFiles
from cdc_core.lake.slice.outcome import Stopwatch
from cdc_core.lake.slice.plan import AddFiles, Divide, Nothing, Plan, SurplusFirst, Whole
from tests.delta.source_model import ROW, TABLE
from tests.support.one_table import SLOT, OneTable
from tests.support.spark import change

FILES = (DataFile("a", 1, 1),)


@pytest.fixture
def one(tmp_path: Path) -> OneTable:
    """A table with a snapshot and three transactions in its changelog, the first of which is merged."""
    made = OneTable(tmp_path, TABLE, ROW)
    made.snapshot(1, [])
    made.append([change("c", 10 * n, 0, None, {"h": n, "k": "k"}) for n in (1, 2, 3)], 30)
    made.merge(10, token=1)
    return made


def plan_of(one: OneTable, order: SliceOrder, new: Appended | None = None, *, is_settled: bool = False) -> Plan:
    task = one.task
    lake = one.held(one.lake)
    merge = LakeMerge(task.run, SLOT, task.paths, task.checks, task.writer, Stopwatch(), task.expected)
    version = lake.version
    try:
        return merge.choose(order, lake, new, is_settled=is_settled)
    finally:
        lake.refresh()
        assert lake.version == version, "nothing is written"


def lsns(plan: Plan) -> list[int]:
    assert isinstance(plan, Whole)
    return [lsn for _, rows in plan.rows for lsn in rows.column("__commit_lsn").to_pylist()]


def without_backlog(order: SliceOrder) -> SliceOrder:
    assert order.merge is not None
    return replace(order, merge=replace(order.merge, has_backlog=False))


@pytest.mark.parametrize("to_lsn", [5, 10])
def test_nothing_up_to_the_merged_lsn(one: OneTable, to_lsn: int) -> None:
    assert plan_of(one, one.order(to_lsn, 1)) == Nothing()


def test_a_backlog_is_read_after_the_merged_lsn_and_up_to_the_rounds(one: OneTable) -> None:
    assert lsns(plan_of(one, one.order(20, 1))) == [20]
    assert lsns(plan_of(one, one.order(30, 1))) == [20, 30]


def test_rows_that_the_task_has_are_not_read_again(one: OneTable) -> None:
    order, rows = without_backlog(one.order(30, 1)), one.changes([change("d", 25, 0, {"h": 1, "k": "k"})])
    assert lsns(plan_of(one, order, Appended(1, [(0, rows)]))) == [25]
    assert lsns(plan_of(one, order)) == []
    assert lsns(plan_of(one, order, Appended(1, None))) == [20, 30], "other tasks wrote them to the changelog"
    assert lsns(plan_of(one, one.order(30, 1), Appended(1, [(0, rows)]))) == [20, 30], "earlier ones are there"


def test_files_of_other_tasks_are_added(one: OneTable) -> None:
    order = replace(without_backlog(one.order(30, 1)), append=WrittenFiles((), FILES, Reached(30)))
    plan = plan_of(one, order, Appended(2, None))
    assert isinstance(plan, AddFiles) and plan.files == FILES and plan.merge.to_lsn == 30


def test_surplus_rows_are_deleted_before_the_first_merge_only(one: OneTable) -> None:
    order = one.order(30, 1, visible="700:702:")
    order = replace(order, snapshot=replace(order.snapshot, resumed="690:691:"))
    assert isinstance(plan_of(one, order), Whole), "changes were merged since the snapshot"
    one.snapshot(2, [])
    order = replace(order, snapshot=replace(order.snapshot, token=2))
    plan = plan_of(one, order)
    assert isinstance(plan, SurplusFirst) and (plan.first, plan.last) == ("690:691:", "700:702:")
    assert isinstance(plan_of(one, order, is_settled=True), Whole)


def test_a_large_slice_is_divided_whatever_waits_in_quarantine(one: OneTable) -> None:
    one.writer = replace(one.writer, part_max_bytes=1)
    order = one.order(30, 1)
    assert order.merge is not None
    waiting, again = replace(order.merge, waiting=True), replace(order.merge, replay=Replay())
    for merge in (order.merge, waiting, again):
        assert isinstance(plan_of(one, replace(order, merge=merge)), Divide)


@pytest.mark.parametrize("mode", list(DeleteMode))
def test_a_truncate_is_divided_where_it_ends_rows(tmp_path: Path, mode: DeleteMode) -> None:
    one = OneTable(tmp_path, TABLE, ROW)
    one.tables = replace(one.tables, modes=DeleteModes(mode, ()))
    one.append([change("c", 10, 0, None, {"h": 1, "k": "k"})], 10)
    one.merge(10)
    rows = [change("t", 20, 0), change("c", 30, 0, None, {"h": 2, "k": "k"})]
    one.append(rows, 30)
    order = one.order(30)
    new = Appended(2, [(0, one.changes(rows))])
    for plan in (plan_of(one, order), plan_of(one, without_backlog(order), new)):
        assert isinstance(plan, Whole if mode is DeleteMode.HARD else Divide)


def test_a_table_that_was_read_again_has_no_plan(one: OneTable) -> None:
    one.snapshot(2, [])
    with pytest.raises(TransientError, match="re-read by another run"):
        plan_of(one, one.order(30, 1))


def test_parts_without_rows_store_the_position_that_they_reach(one: OneTable) -> None:
    position = one.changelog_position
    assert position is not None
    order = replace(one.order(30, 1), append=WrittenFiles((), (), Reached(40), position), merge=None)
    assert one.task(order).appended == 0
    assert one.changelog_position == (40, position.tx_index)
