"""Maintenance beside the rounds: one task at a time, for a share of the time, and never for a table that is held."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cdc_core.errors import LakeError
from cdc_core.lake.apply import ways
from cdc_core.lake.delta.data_file import MarkedRows
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.index import key_positions
from cdc_core.lake.maintenance import compaction
from cdc_core.lake.maintenance.wear import worn
from cdc_core.lake.slice import upkeep_line as upkeep
from cdc_core.lake.slice import write
from cdc_core.lake.slice.upkeep import UpkeepDone, UpkeepOrder, UpkeepTask
from cdc_core.lake.slice.upkeep_line import Upkeep
from tests.delta.source_model import ROW, TABLE, SourceTable, plain
from tests.support.one_table import OneTable
from tests.support.waits import patient, wait_until

A, B, C = (UpkeepOrder(name) for name in "abc")


class Work:
    """Records orders; each waits until ``free`` is set."""

    def __init__(self) -> None:
        self.done: list[UpkeepOrder] = []
        self.more: dict[UpkeepOrder, int] = {}
        self.free = threading.Event()
        self.free.set()
        self.begun = threading.Event()

    def __call__(self, order: UpkeepOrder) -> UpkeepDone:
        self.begun.set()
        assert self.free.wait(patient(20))
        self.done.append(order)
        self.more[order] = self.more.get(order, 0) - 1
        return UpkeepDone(0.0, self.more[order] >= 0)


def test_orders_are_processed_in_turn_and_a_table_waits_once() -> None:
    work = Work()
    work.free.clear()
    line = Upkeep(work, share=1.0)
    line.request([A])
    assert work.begun.wait(patient(20))
    line.request([B, C])
    line.request([B, C, B])
    work.free.set()
    line.close()
    assert work.done == [A, B, C]
    line.request([A])
    line.close()
    assert work.done == [A, B, C], "nothing is begun after the end"


def test_a_table_with_more_to_do_goes_to_the_end_of_the_line() -> None:
    work = Work()
    work.more = {A: 2}
    work.free.clear()
    line = Upkeep(work, share=1.0)
    line.request([A, B])
    work.free.set()
    wait_until(lambda: len(work.done) == 4, 20)
    line.close()
    assert work.done == [A, B, A, A]


def test_no_task_is_begun_for_a_table_that_is_held_and_none_is_active_in_the_block() -> None:
    work = Work()
    work.free.clear()
    line = Upkeep(work, share=1.0)
    line.request([A])
    assert work.begun.wait(patient(20))
    threading.Timer(0.1, work.free.set).start()
    with line.leaving([A.path, B.path]):
        assert work.done == [A], "the block begins when the task has ended"
        line.request([B, C])
        wait_until(lambda: work.done == [A, C], 20)
    wait_until(lambda: work.done == [A, C, B], 20)
    line.close()


def test_passes_take_a_share_of_the_time() -> None:
    begun: list[float] = []

    def work(order: UpkeepOrder) -> UpkeepDone:
        begun.append(time.monotonic())
        time.sleep(0.1)
        return UpkeepDone(0.1, len(begun) < 4)

    line = Upkeep(work, share=0.25)
    line.request([A])
    wait_until(lambda: len(begun) == 4, 30)
    line.close()
    assert all(later - earlier >= 0.35 for earlier, later in itertools.pairwise(begun))


def test_an_error_concerns_one_table(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[UpkeepOrder] = []

    def work(order: UpkeepOrder) -> UpkeepDone:
        seen.append(order)
        raise LakeError("No room.", "Make some.") if order is A else RuntimeError("bug")

    line = Upkeep(work, share=1.0)
    line.request([A, B, C])
    line.close()
    assert seen == [A, B, C]
    assert "Maintenance of a during the stream was skipped: No room." in caplog.text


def test_the_end_does_not_wait_for_a_long_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_CLOSE_SECONDS", 0.0)
    work = Work()
    work.free.clear()
    line = Upkeep(work, share=1.0)
    line.request([A, B])
    assert work.begun.wait(patient(20))
    threading.Timer(0.1, work.free.set).start()
    line.close()
    assert work.done == [A]


def merger(folder: Path) -> OneTable:
    one = OneTable(folder, TABLE, ROW)
    one.mark_rows()
    one.writer = replace(one.writer, index=str(folder / "index"))
    return one


def with_content(folder: Path) -> tuple[SourceTable, OneTable]:
    """A source, and its table with the same rows."""
    source, one = SourceTable(5, 100), merger(folder)
    source.next_transaction(300, only_inserts=True)
    one.snapshot(1, source.snapshot())
    return source, one


def upkeep_task(one: OneTable) -> UpkeepTask:
    return UpkeepTask(one.run, one.writer.index, one.writer.index_max_bytes)


@pytest.mark.slow
def test_long_passes_are_left_to_a_task_beside_the_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_AT_ONCE_BYTES", 0)
    monkeypatch.setattr(ways, "MARK_BYTES", 0)
    source, one = with_content(tmp_path)
    order = UpkeepOrder(one.lake, TABLE.row_key)
    passes = 0
    for _ in range(40):
        one.append(source.next_transaction(20), source.lsn)
        due = one.merge(source.lsn, token=1).upkeep
        assert due in ((), (order,))
        held = one.held(one.lake)
        if due:
            before = {file.path: file.live for file in held.files}
            version = held.version
            upkeep_task(one)(order)
            after = {file.path: file.live for file in held.files}
            assert held.version == version + 1 and sum(after.values()) == sum(before.values())
            passes += 1
        assert plain(one.rows) == plain(source.rows)
        assert len(held.files) <= 24
    assert passes
    assert not compaction.maintain_behind(held) and not upkeep_task(one)(order).has_more


@pytest.mark.slow
def test_short_passes_are_made_by_the_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_WORN_BYTES", 0)
    monkeypatch.setattr(ways, "MARK_BYTES", 0)
    source, one = with_content(tmp_path)
    has_marks = False
    for _ in range(25):
        one.append(source.next_transaction(20), source.lsn)
        assert one.merge(source.lsn, token=1).upkeep == ()
        files = one.held(one.lake).files
        assert not worn(files) and len(files) <= 24
        has_marks |= any(file.live < file.rows for file in files)
    assert plain(one.rows) == plain(source.rows)
    # Which round compacts the table depends on its path.
    assert has_marks


@pytest.mark.slow
def test_the_commit_that_wears_a_file_moves_its_other_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_WORN_BYTES", 0)
    monkeypatch.setattr(ways, "MARK_BYTES", 0)
    monkeypatch.setattr(write, "_INDEX_SECONDS", 0.0)
    source, one = SourceTable(5, 100), merger(tmp_path)
    source.next_transaction(300, only_inserts=True)
    one.snapshot(1, source.snapshot())
    begun = one.held(one.lake).version
    for number in range(25):
        # The first one moves the only file, so that no row is marked.
        one.append(source.next_transaction(20 if number else 200), source.lsn)
        outcome = one.merge(source.lsn, token=1)
        if outcome.waits:
            assert not number, "files of merges have an index"
            assert not upkeep_task(one)(outcome.upkeep[0]).has_more
            outcome = one.merge(source.lsn, token=1)
        held = one.held(one.lake)
        assert not worn(held.files) and len(held.files) <= 16
    # A commit a round, one that allows marks, and few compactions; moves of their own would be some twenty more.
    assert held.version - begun <= 25 + 1 + 2
    assert plain(one.rows) == plain(source.rows)
    assert any(file.live < file.rows for file in held.files)


def test_which_files_are_moved_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_WORN_BYTES", 0)
    table = DeltaTable.create(str(tmp_path / "t"), pa.schema([("id", pa.int64())]), {})
    table.commit([table.write(pa.table({"id": list(range(first, first + 100))})) for first in (0, 100)])

    def moved(first: int, second: int) -> list[bool]:
        files = sorted(table.files, key=lambda file: file.minimum["id"])
        marked = [MarkedRows(file, np.arange(count)) for file, count in zip(files, (first, second), strict=True)]
        paths = compaction.moved_at_once(table, marked)
        return [each.file.path in paths for each in marked]

    assert moved(11, 20) == [False, True]
    assert moved(20, 20) == [True, True]
    assert moved(99, 100) == [True, False], "a file without rows is removed"
    table.enable_vectors()
    first = min(table.files, key=lambda file: file.minimum["id"])
    table.commit(marked=[MarkedRows(first, np.arange(90, 99))])
    assert moved(11, 11) == [True, False], "rows that are marked already count"
    size = max(file.size for file in table.files)
    with monkeypatch.context() as patched:
        patched.setattr(compaction, "_AT_ONCE_BYTES", size + 1)
        assert moved(20, 20) == [False, False], "both are too large for a round"
        assert moved(20, 1) == [True, False]
        patched.setattr(compaction, "_MEMORY_BYTES", 1)
        assert moved(20, 1) == [False, False]
    with monkeypatch.context() as patched:
        patched.setattr(compaction, "_WORN_BYTES", size + 1)
        assert moved(20, 20) == [False, False], "small ones are left to compaction"
    table.commit(definition=table.definition.with_change_feed())
    assert moved(20, 20) == [False, False]


@pytest.mark.slow
def test_small_worn_files_are_left_to_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "MARK_BYTES", 0)
    source, one = with_content(tmp_path)
    begun, was_worn = one.held(one.lake).version, False
    for _ in range(30):
        one.append(source.next_transaction(20), source.lsn)
        assert one.merge(source.lsn, token=1).upkeep == ()
        was_worn |= bool(worn(one.held(one.lake).files))
    # A commit a round, one that allows marks, and a compaction every sixteenth round or as it is the table's turn.
    assert was_worn and one.held(one.lake).version - begun <= 30 + 1 + 4
    assert plain(one.rows) == plain(source.rows)


def test_a_slice_waits_for_slow_indexes_and_then_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "MARK_BYTES", 0)
    source, one = SourceTable(6, 100), merger(tmp_path)
    source.next_transaction(300, only_inserts=True)
    one.snapshot(1, source.snapshot())
    for _ in range(4):
        one.append(source.next_transaction(40), source.lsn)
        one.merge(source.lsn, token=1)
    before = plain(one.rows)
    for path in (tmp_path / "index").iterdir():
        path.unlink()
    one.run = "another run"  # with nothing in memory
    key_positions.positions_in.cache_clear()
    monkeypatch.setattr(write, "_INDEX_SECONDS", 0.0)
    at = one.lake_position
    one.append(source.next_transaction(40), source.lsn)
    outcome = one.merge(source.lsn, token=1)
    assert outcome.waits and outcome.applied is None and outcome.merged == at.lsn
    assert (one.lake_position, plain(one.rows)) == (at, before), "nothing of the slice is visible"
    (order,) = outcome.upkeep
    assert order == UpkeepOrder(one.lake, TABLE.row_key, indexes=True)
    while upkeep_task(one)(order).has_more:
        pass
    outcome = one.merge(source.lsn, token=1)
    assert not outcome.waits and outcome.merged == source.lsn
    assert plain(one.rows) == plain(source.rows)


def test_a_slice_does_not_wait_for_indexes_that_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "MARK_BYTES", 0)
    monkeypatch.setattr(write, "_INDEX_SECONDS", 0.0)
    source, one = SourceTable(7, 50), merger(tmp_path)
    (tmp_path / "index").write_text("not a folder")
    source.next_transaction(100, only_inserts=True)
    one.snapshot(1, source.snapshot())
    waited = []
    for _ in range(5):
        one.append(source.next_transaction(20), source.lsn)
        waited.append(one.merge(source.lsn, token=1).waits)
    assert waited == [True, False, False, False, False]
    assert plain(one.rows) == plain(source.rows)
