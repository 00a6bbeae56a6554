"""What several tasks merge of slices with changes in quarantine, replays, truncates and changes of the key.

Each is merged in parts of some rows and in one, and both lakes are equal, quarantine included; the rows that the source
has are the source's once nothing waits. No part is much larger than what the option allows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.errors import RereadNeededError
from cdc_core.lake.apply.kept_values import KeptValues
from cdc_core.lake.delete_columns import CURRENT, DELETED
from cdc_core.lake.delete_modes import DeleteMode, DeleteModes
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.rows import buckets
from cdc_core.lake.schema.change_columns import stored, stored_schema
from cdc_core.lake.schema.lake_schema import changelog_properties, ensure_table
from cdc_core.lake.schema.target_schema import TargetSchema
from cdc_core.lake.schema.view import SchemaView
from cdc_core.lake.slice import kept_values, lake_merge, share_task
from cdc_core.lake.slice.kept_values import kept_bytes
from cdc_core.lake.slice.order import Replay, SliceOrder
from cdc_core.lake.slice.outcome import SliceOutcome
from cdc_core.lake.slice.several_tasks import SeveralTasks
from cdc_core.lake.slice.write import LakeWriter
from cdc_core.lake.stores import changelog
from cdc_core.lake.stores.changelog import Reached, append_changes
from cdc_core.quality.options import QualityOptions, UserRule
from tests.delta.kept_model import KeptModel
from tests.delta.source_model import ROW, TABLE, SourceTable, plain
from tests.support.one_table import SLOT, OneTable, quarantined
from tests.support.sampling import examples
from tests.support.spark import change, change_schema
from tests.unit.engine.test_slice_large import Twins
from tests.unit.lake.test_delete_modes_model import assert_history, assert_soft

pytestmark = pytest.mark.slow
PART_BYTES = 12_000
POSITIONS = ("__commit_lsn", "__tx_index", "__commit_ts")
MODES = [DeleteMode.SOFT, DeleteMode.HISTORY]


@pytest.fixture(autouse=True)
def _four_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each level, instead of 32: what a part costs is the time of these tests."""
    monkeypatch.setattr(buckets, "_BITS", 2)
    monkeypatch.setattr(buckets, "_PARTS", 4)


def rule(value: int) -> QualityOptions:
    return QualityOptions(quality_rules=(("luck", UserRule(str(TABLE.id), f"after.v is distinct from {value}")),))


class Divided(Twins):
    """Twins of which the first is merged in parts: ``sizes`` are the bytes of their rows, ``divided`` counts slices."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.sizes, self.divided = list[int](), 0
        self.tables[0].writer = replace(self.tables[0].writer, part_max_bytes=PART_BYTES)
        passing, merged = share_task._ShareChecks.passing, SeveralTasks.merged

        def sized(checks: Any, rows: pa.Table) -> Any:
            if checks._work.writer.part_max_bytes == PART_BYTES:
                self.sizes.append(rows.nbytes)
            return passing(checks, rows)

        def counted(several: SeveralTasks, orders: list[SliceOrder], outcomes: list[SliceOutcome]) -> Any:
            if several.task.writer.part_max_bytes == PART_BYTES:
                self.divided += sum(outcome.done.divided is not None for outcome in outcomes)
            return merged(several, orders, outcomes)

        monkeypatch.setattr(share_task._ShareChecks, "passing", sized)
        monkeypatch.setattr(SeveralTasks, "merged", counted)

    def judge(self, quality: QualityOptions) -> None:
        for one in self.tables:
            one.quality = quality

    def both(self, to: int, replay: Replay | None = None) -> SliceOutcome:
        """Merge both, and compare them."""
        table = self.tables[0]
        parts, whole = (one.merge(to, replay=replay) for one in self.tables)
        assert quarantined(parts) == quarantined(whole)
        mine, theirs = parts.applied, whole.applied
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            assert replace(mine, version=0) == replace(theirs, version=0)
        without = () if table.table.row_key else POSITIONS
        assert table.contents(*without) == self.tables[1].contents(*without)
        if DeltaTable.open(table.paths.quarantine(table.table.id)) is not None:
            left, right = self.quarantined
            assert left == right
        return parts

    def replay(self, decision: Replay) -> SliceOutcome:
        lsn = self.tables[0].lake_position.lsn
        assert lsn is not None
        return self.both(lsn + 1, decision)

    @property
    def live(self) -> list[dict[str, Any]]:
        return [row for row in self.tables[0].rows if row.get(CURRENT, True) and not row.get(DELETED)]


CASES = [(mode, False) for mode in DeleteMode] + [(DeleteMode.HARD, True)]


@pytest.mark.parametrize("ends", ["accepted", "dropped"])
@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize(("mode", "keyless"), CASES)
def test_what_waits_is_divided_with_the_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: DeleteMode, keyless: bool, truncates: bool, ends: str
) -> None:
    histories = 8 if keyless else 60
    settings = {"histories": histories, "keyless": keyless, "truncates": truncates, "truncate_chance": 0.004}
    twins = Divided(monkeypatch, tmp_path, mode, **settings)
    table = twins.tables[0].table
    twins.judge(QualityOptions(quality_rules=(("luck", UserRule(str(table.id), "after.v is distinct from 2")),)))
    twins.change(1, 200, only_inserts=True)
    twins.both(twins.source.lsn)
    for _ in range(examples(8) // 4):
        twins.change(2, 80)
        assert quarantined(twins.both(twins.source.lsn)).waiting > 5
    # Beside what waits, nothing is left: what is checked again is divided by itself.
    twins.judge(QualityOptions(quality_rules=(("luck", UserRule(str(table.id), "after.v is distinct from 1")),)))
    before = twins.divided
    assert quarantined(twins.replay(Replay())).replayed > 0
    twins.change(1, 60)
    if ends == "dropped":
        done = twins.replay(Replay(before_drop=True))
        assert quarantined(twins.replay(Replay(drop=True))).dropped == quarantined(done).waiting
    else:
        twins.both(twins.source.lsn)
        assert quarantined(twins.replay(Replay(accept_all=True))).waiting == 0
        assert plain(twins.live) == plain(twins.source.rows)
    assert before > 2 and len(twins.sizes) > 10
    if not keyless:  # equal rows are one part, and fewer wait
        assert twins.divided > before and max(twins.sizes) < 3 * PART_BYTES


def row_at(key: str, v: int) -> dict[str, Any]:
    return {"h": 1, "k": key, "v": v, "big": key * 30, "num": None, "__rescued": None}


@pytest.mark.parametrize("keyless", [False, True])
@pytest.mark.parametrize("refuses", [False, True], ids=["passing", "refused"])
@pytest.mark.parametrize("mode", list(DeleteMode))
def test_a_chain_of_key_changes_is_many_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: DeleteMode, refuses: bool, keyless: bool
) -> None:
    """As ``update t set id = id + 1`` sends it; without a key, every update is a link of the chain."""
    if keyless and mode is not DeleteMode.HARD:
        pytest.skip("these modes need a key")
    count, merged, prepare = 900, list[int](), share_task.prepare

    def sized(rows: pa.Table, *more: Any) -> Any:
        merged.append(rows.nbytes)
        return prepare(rows, *more)

    monkeypatch.setattr(share_task, "prepare", sized)
    twins = Divided(monkeypatch, tmp_path, mode, histories=1, keyless=keyless)
    table = twins.tables[0].table
    twins.judge(QualityOptions(quality_rules=(("luck", UserRule(str(table.id), "after.v <> 13")),)))
    before = [row_at(f"k{number:04}", number % 5) for number in range(count)]
    after = [row_at(f"k{number + 1:04}", 13 if refuses and number % 30 == 7 else 6) for number in range(count)]
    steps = [change("c", 110, at, None, row) for at, row in enumerate(before)]
    steps += [change("u", 120, at, before[-1 - at], after[-1 - at]) for at in range(count)]
    # Another row takes the first key, which is free, and one that waits is deleted.
    steps += [change("c", 130, 0, None, row_at("k0000", 1)), change("d", 130, 1, row_at("k0008", after[7]["v"]))]
    for lsn in (110, 120, 130):
        made = [{**step, "__lsn": lsn} for step in steps if step["__commit_lsn"] == lsn]
        for one in twins.tables:
            one.append(made, lsn)
        done = twins.both(lsn)
        assert lsn != 120 or quarantined(done).waiting == (count // 30 if refuses else 0)
        if lsn == 120:
            assert twins.divided == 2 and len(merged) > 25 and max(merged) < 3 * PART_BYTES
    source = [row_at("k0000", 1), *(row for number, row in enumerate(after) if number != 7)]
    # What is refused is not there, neither at its new key nor at the old one.
    assert plain(twins.live) == plain([row for row in source if row["v"] != 13])
    if refuses:
        assert quarantined(twins.replay(Replay(accept_all=True))).replayed == count // 30 - 1
        assert plain(twins.live) == plain(source)


@pytest.mark.parametrize("what", ["all pass", "some are refused", "others' key changes", "its key changes"])
@pytest.mark.parametrize("mode", list(DeleteMode))
def test_many_changes_of_one_row_are_not_in_memory_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: DeleteMode, what: str
) -> None:
    """A part that cannot be divided by keys is read in pieces, of which only what decides is kept."""
    sizes, prepare = list[int](), share_task.prepare

    def sized(rows: pa.Table, *more: Any) -> Any:
        sizes.append(rows.nbytes)
        return prepare(rows, *more)

    monkeypatch.setattr(share_task, "prepare", sized)
    monkeypatch.setattr(changelog, "_STREAMED_BYTES", PART_BYTES // 4)
    twins = Divided(monkeypatch, tmp_path, mode, histories=1)
    twins.judge(QualityOptions(quality_rules=(("luck", UserRule(str(TABLE.id), "after.v <> 13")),)))
    steps = [change("c", 110, at, None, row_at(key, 1)) for at, key in enumerate(("hot", "k1", "k2", "k3"))]
    draw, hot, is_there = random.Random(17), row_at("hot", 0), True
    for at in range(0, 2400, 2):
        if at in (402, 802) and what.endswith("key changes"):
            # A row that is moved without its large value; this one, there and back, or another one.
            is_this = what.startswith("its")
            old = hot if is_this else row_at(f"k{at // 400}", 1)
            new = {**old, "k": "there" if at == 402 else "hot"} if is_this else {**old, "k": f"m{at}"}
            steps.append(change("u", 120, at + 1, old, {**new, "big": None}, ["big"]))
            hot = new if is_this else hot
        elif not is_there or draw.random() < 0.02:
            steps.append(change("d", 120, at, hot) if is_there else change("c", 120, at, None, hot))
            is_there = not is_there
        else:
            hot = {**hot, "v": 13 if what == "some are refused" and at == 1400 else at % 11, "num": Decimal(at)}
            unsent = ["big"] if draw.random() < 0.7 else []
            hot = hot if unsent else {**hot, "big": f"{at:04}" * 15}
            steps.append(change("u", 120, at, None, {**hot, "big": None} if unsent else hot, unsent))
    rows = [{**step, "__lsn": step["__commit_lsn"]} for step in steps]
    for start in range(0, len(rows), 60):
        some = rows[start : start + 60]
        reached = 120 if start + 60 >= len(rows) else None
        for one in twins.tables:
            one.append(some, reached, (some[-1]["__commit_lsn"], some[-1]["__tx_index"]))
    twins.both(120)
    assert twins.divided == 1
    assert len(twins.tables[0].events) == len(steps)
    is_whole = what in ("some are refused", "its key changes") or mode is DeleteMode.HISTORY
    assert (max(sizes) > 8 * PART_BYTES) is is_whole and (is_whole or max(sizes) < 2 * PART_BYTES)


@pytest.mark.parametrize("what", ["many", "large ones"])
@pytest.mark.parametrize("mode", list(DeleteMode))
def test_values_that_changes_leave_out_count_as_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: DeleteMode, what: str
) -> None:
    """The slice is small, and what it takes from the lake's rows is not."""
    sizes, prepare, count = list[int](), share_task.prepare, 400

    def sized(rows: pa.Table, *more: Any) -> Any:
        sizes.append(rows.num_rows)
        return prepare(rows, *more)

    twins = Divided(monkeypatch, tmp_path, mode, histories=1)
    rows = [{**row_at(f"k{number:04}", 1), "big": f"{number:04}" * 250} for number in range(count)]
    for one in twins.tables:
        one.writer = replace(one.writer, part_max_bytes=100 * PART_BYTES)
        one.append([change("c", 110, at, None, row) for at, row in enumerate(rows)], 110)
        assert one.merge(110).applied is not None
        changes = [change("u", 120, at, None, {**row, "v": 2, "big": None}, ["big"]) for at, row in enumerate(rows)]
        one.append(changes, 120)
    twins.tables[0].writer = replace(twins.tables[0].writer, part_max_bytes=8 * PART_BYTES)
    for module in (share_task, lake_merge):
        monkeypatch.setattr(module, "kept_bytes", partial(kept_bytes, fewest=10 if what == "many" else 1_000))
    if what == "large ones":
        monkeypatch.setattr(kept_values, "_SMALL_BYTES", 1 << 10)
    monkeypatch.setattr(share_task, "prepare", sized)
    twins.both(120)
    assert len(sizes) > 3 and max(sizes) < count // 2
    assert plain(twins.live) == plain([{**row, "v": 2} for row in rows])


def pieces_of_parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of rows whose kept values are read together, in parts; filled while slices are merged."""
    found, in_pieces = list[int](), KeptValues.in_pieces

    def counted(kept: KeptValues, *given: Any) -> Iterator[pa.Table]:
        for rows in in_pieces(kept, *given):
            found.append(rows.num_rows)
            yield rows

    monkeypatch.setattr(KeptValues, "in_pieces", counted)
    return found


@pytest.mark.parametrize("mode", [DeleteMode.HARD, DeleteMode.SOFT])
def test_values_that_a_chain_of_key_changes_leaves_out_are_not_in_memory_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: DeleteMode
) -> None:
    """The keys are one part, and what its rows take from the lake's is read when they are written."""
    twins, pieces, count = Divided(monkeypatch, tmp_path, mode, histories=1), pieces_of_parts(monkeypatch), 400
    rows = [{**row_at(f"k{number:04}", 1), "big": f"{number:04}" * 250} for number in range(count)]
    moved = [{**row, "k": f"k{number + 1:04}", "v": 2} for number, row in enumerate(rows)]
    steps = [change("u", 120, at, rows[at], {**moved[at], "big": None}, ["big"]) for at in reversed(range(count))]
    for one in twins.tables:
        one.writer = replace(one.writer, part_max_bytes=100 * PART_BYTES)
        one.append([change("c", 110, at, None, row) for at, row in enumerate(rows)], 110)
        assert one.merge(110).applied is not None
        one.append([{**step, "__tx_index": at} for at, step in enumerate(steps)], 120)
    twins.tables[0].writer = replace(twins.tables[0].writer, part_max_bytes=8 * PART_BYTES)
    for module in (share_task, lake_merge):
        monkeypatch.setattr(module, "kept_bytes", partial(kept_bytes, fewest=10))
    twins.both(120)
    assert sum(pieces) == count + (mode is DeleteMode.SOFT) and max(pieces) < count // 3
    assert plain(twins.live) == plain(moved)


@pytest.mark.parametrize("way", ["by size", "marked", "never marked"])
@pytest.mark.parametrize("mode", [DeleteMode.HARD, DeleteMode.SOFT])
def test_rows_that_moved_take_their_values_and_ids_in_any_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: DeleteMode, way: str
) -> None:
    twins, pieces, write_part = (
        Divided(monkeypatch, tmp_path, mode, histories=60),
        pieces_of_parts(monkeypatch),
        LakeWriter.write_part,
    )
    monkeypatch.setattr(LakeWriter, "write_part", lambda *given: write_part(*given[:-1], 3))
    if way == "never marked":
        twins.never_mark()
    elif way == "marked":
        twins.mark_rows()
    twins.load()
    for one in twins.tables:
        lake = one.held(one.lake)
        lake.commit(definition=lake.definition.with_row_tracking())
    for _ in range(2):
        before = [ids_by_key(one) for one in twins.tables]
        twins.change(2, 80)
        twins.both(twins.source.lsn)
        kept = [
            {key: found for key, found in ids_by_key(one).items() if found == former.get(key)}
            for one, former in zip(twins.tables, before, strict=True)
        ]
        assert kept[0].keys() == kept[1].keys() and kept[0]
    assert twins.divided == 2 and len(pieces) > 20 and max(pieces) == 3
    assert plain(twins.live) == plain(twins.source.rows)


def ids_by_key(one: OneTable) -> dict[tuple[Any, ...], int]:
    """The ids of rows by their key."""
    lake = one.held(one.lake)
    lake.refresh()
    return {key[:2]: found for key, found in ids(lake).items()}


@pytest.mark.parametrize("way", ["rewritten", "marked", "never marked"])
@pytest.mark.parametrize("mode", MODES)
def test_truncates_end_the_rows_of_all_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: DeleteMode, way: str
) -> None:
    twins = Divided(monkeypatch, tmp_path, mode, histories=60)
    model, sent = KeptModel(("h", "k")), list[dict[str, Any]]()
    step = twins.source.next_transaction
    monkeypatch.setattr(twins.source, "next_transaction", lambda *given: sent.extend(made := step(*given)) or made)
    if way == "marked":
        twins.mark_rows()
    elif way == "never marked":
        twins.never_mark()
    twins.change(1, 200, only_inserts=True)
    twins.both(twins.source.lsn)
    twins.source.truncates = True
    for chance in (0.02, 1.0, 0.005):
        twins.source.truncate_chance = chance
        twins.change(2, 150 if chance < 1 else 2)
        twins.both(twins.source.lsn)
    twins.source.truncate_chance = 0.0
    twins.change(1, 40)
    twins.both(twins.source.lsn)
    for row in sent:
        model.apply(row)
    assert any(row["__op"] == "t" for row in sent) and twins.divided > 2
    for one in twins.tables:
        (assert_soft if mode is DeleteMode.SOFT else assert_history)(one.rows, model)
    assert plain(twins.live) == plain(twins.source.rows)
    assert way == "rewritten" or twins.tables[0].held(twins.tables[0].lake).has_deletion_vectors is (way == "marked")


@pytest.mark.parametrize("mode", MODES)
def test_a_truncate_writes_the_change_data_feed_and_keeps_row_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: DeleteMode
) -> None:
    twins = Divided(monkeypatch, tmp_path, mode, histories=60)
    twins.load()
    one = twins.tables[0]
    one.mark_rows()
    lake = one.held(one.lake)
    lake.commit(definition=lake.definition.with_vectors().with_row_tracking())
    before = ids(lake)
    twins.change(1, 100)
    twins.truncate()
    twins.change(1, 20)
    assert one.merge(twins.source.lsn).applied is not None
    lake.refresh()
    after = ids(lake)
    # What was there before and is there at the same position has the id that it had.
    kept = {row: after[row] for row in before if row in after}
    assert kept == {row: before[row] for row in kept} and len(set(after.values())) == len(after)
    assert mode is DeleteMode.SOFT or len(kept) == len(before)


def ids(lake: DeltaTable) -> dict[tuple[Any, ...], int]:
    """The ids of rows by their key and position."""
    names = lake.tracked_schema.names
    rows = [row for file in lake.files for row in lake.read(file, names).to_pylist()]
    return {(row["h"], row["k"], row["__commit_lsn"], row["__tx_index"]): row[names[-2]] for row in rows}


@pytest.mark.parametrize("part_bytes", [1 << 30, 1])
def test_a_slice_ends_where_the_key_of_the_table_changes(tmp_path: Path, part_bytes: int) -> None:
    """The rest is merged by the next round, under the key in force then."""
    former, source = TABLE, SourceTable(7, 40)
    table = replace(TABLE, primary_key=("k", "h"), identity_key=("k", "h"), version=2)
    one = OneTable(tmp_path, table, ROW)
    one.tables = replace(one.tables, modes=DeleteModes(DeleteMode.HARD, ()))
    one.writer = replace(one.writer, part_max_bytes=part_bytes)
    names = tuple(field.name for field in list(ROW)[:-1])
    views = {1: SchemaView(names, former, ()), 2: SchemaView(names, table, ())}
    schema = stored_schema(change_schema(ROW), 1, None)
    changelog = ensure_table(one.changelog, schema, table.id, changelog_properties(1), None)
    ends = []
    for version in (1, 2):
        made = [row for _ in range(2) for row in source.next_transaction(100)]
        rows = stored(one.changes(made), version, changelog.schema)
        append_changes(changelog, rows, SLOT, table.id, Reached(source.lsn))
        ends.append(source.lsn)
    order = replace(one.order(source.lsn), schema=TargetSchema(table, 2, views=views))
    merged = [one.task(order) for _ in range(3)]
    assert [outcome.merged for outcome in merged] == [*ends, ends[1]] and not any(outcome.error for outcome in merged)
    assert merged[0].applied is not None and merged[1].applied is not None and merged[2].applied is None
    assert plain(one.rows) == plain(source.rows)
    # A transaction with rows of both keys cannot be merged.
    for version in (1, 2):
        made = source.next_transaction(1)
        row = {**made[0], "__commit_lsn": ends[1] + 500, "__tx_index": version}
        rows = stored(one.changes([row]), version, changelog.schema)
        append_changes(changelog, rows, SLOT, table.id, Reached(None, (ends[1] + 500, version)))
    failed = one.task(replace(one.order(ends[1] + 500), schema=order.schema))
    assert isinstance(failed.error, RereadNeededError) and "its key changed in a transaction" in str(failed.error)
