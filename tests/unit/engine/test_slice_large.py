"""A slice that is merged in parts: it commits what one part would; no Spark, no server."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from cdc_core.errors import TransientError
from cdc_core.lake.apply import multiset_rows
from cdc_core.lake.delete_modes import DeleteMode, DeleteModes
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.rows import buckets
from cdc_core.lake.schema.features import FeaturePolicy
from cdc_core.lake.slice.divided import Share
from cdc_core.lake.slice.outcome import SliceOutcome
from cdc_core.lake.slice.reports import QuarantineReport
from cdc_core.lake.slice.share_task import ShareTask
from cdc_core.lake.slice.shares import RewriteOrder, RewrittenFile, ShareResult
from cdc_core.lake.slice.write import LakeWriter
from cdc_core.quality.options import QualityOptions, UserRule
from cdc_core.schema.changes import LakeFeatures
from tests.delta.source_model import KEYLESS, ROW, TABLE, SourceTable, plain
from tests.support.deletion_vectors import mark_deleted
from tests.support.one_table import OneTable, quarantined
from tests.support.spark import lake_rows

pytestmark = pytest.mark.slow
SEED = int(os.environ.get("WAL2LAKE_SEED", "20261122"))
PART_BYTES = 40_000
_BITS = 3


@pytest.fixture(autouse=True)
def _eight_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each level, instead of 32: what a part costs is the time of these tests."""
    monkeypatch.setattr(buckets, "_BITS", _BITS)
    monkeypatch.setattr(buckets, "_PARTS", 1 << _BITS)


class Twins:
    """The same changes in two lakes: one merged in parts, one as a whole."""

    def __init__(self, folder: Path, mode: DeleteMode = DeleteMode.HARD, **settings: Any) -> None:
        self.source = SourceTable(SEED, **settings)
        table = KEYLESS if self.source.keyless else TABLE
        self.tables = [OneTable(folder / name, table, ROW) for name in ("parts", "whole")]
        for one, most in zip(self.tables, (PART_BYTES, 1 << 30), strict=True):
            one.tables = replace(one.tables, modes=DeleteModes(mode, ()))
            one.writer = replace(one.writer, part_max_bytes=most)

    def change(self, transactions: int, statements: int, only_inserts: bool = False) -> None:
        made = [self.source.next_transaction(statements, only_inserts) for _ in range(transactions)]
        rows = [{**row, "__lsn": row["__commit_lsn"]} for transaction in made for row in transaction]
        half = len(rows) // 2
        for one in self.tables:
            if half == 0:
                one.append(rows, rows[-1]["__commit_lsn"])
                continue
            # Two files of the changelog, the first ending within a transaction.
            cut = (rows[half - 1]["__commit_lsn"], rows[half - 1]["__tx_index"])
            before = max((row["__commit_lsn"] for row in rows[:half] if row["__commit_lsn"] < cut[0]), default=None)
            one.append(rows[:half], before, cut)
            one.append(rows[half:], rows[-1]["__commit_lsn"])

    def truncate(self) -> None:
        """A transaction of one statement."""
        self.source.truncates, self.source.truncate_chance = True, 1.0
        self.change(1, 1)
        self.source.truncates = False

    def load(self) -> None:
        """Insert rows, which are in one file after this."""
        self.change(1, 300, only_inserts=True)
        for one in self.tables:
            most = one.writer.part_max_bytes
            one.writer = replace(one.writer, part_max_bytes=1 << 30)
            assert one.merge(self.source.lsn).applied is not None
            one.writer = replace(one.writer, part_max_bytes=most)

    def mark_rows(self) -> None:
        """From now on rows are marked, not files rewritten."""
        for one in self.tables:
            one.mark_rows()

    def never_mark(self) -> None:
        """From now on no rows are marked."""
        for one in self.tables:
            one.writer = replace(one.writer, features=FeaturePolicy(LakeFeatures.WIDEST))

    def mark_deleted(self, places: Sequence[int]) -> None:
        """Delete rows of the only file, as another program does: the file gets a deletion vector."""
        gone = set[tuple[Any, ...]]()
        for one in self.tables:
            lake = one.held(one.lake)
            (file,) = lake.files
            rows = lake.read(file, ["h", "k"]).to_pylist()
            gone |= {tuple(rows[place].values()) for place in places}
            mark_deleted(one.lake, places)
            assert len(one.rows) == len(rows) - len(gone)
        self.source.rows[:] = [row for row in self.source.rows if (row["h"], row["k"]) not in gone]

    def check(self, *rules: tuple[str, UserRule]) -> None:
        """Put rows that break a rule into quarantine."""
        for one in self.tables:
            one.quality = QualityOptions(quality_rules=rules)

    @property
    def quarantined(self) -> list[list[str]]:
        """The rows in each quarantine table."""
        names = ("__commit_lsn", "__tx_index", "reasons", "row", "status", "__waits", "__round")
        found = [lake_rows(one.paths.quarantine(one.table.id)) for one in self.tables]
        return [sorted(repr([row[name] for name in names]) for row in rows) for rows in found]

    def merge(self) -> list[SliceOutcome]:
        return [one.task(one.order(self.source.lsn)) for one in self.tables]

    def assert_equal(self, *positions: str) -> None:
        """The contents of both tables, with the columns ``positions``, are equal."""
        parts, whole = (one.contents(*positions) for one in self.tables)
        assert parts == whole

    def merge_alike(self, *positions: str) -> None:
        """Merge both, with equal outcomes and contents."""
        parts, whole = self.merge()
        assert parts.error is None and parts.applied is not None and whole.applied is not None
        assert replace(parts.applied, version=0) == replace(whole.applied, version=0)
        self.assert_equal(*positions)


@pytest.mark.parametrize("keyless", [False, True])
def test_inserts_in_parts_are_one_commit_of_files_in_stream_order(tmp_path: Path, keyless: bool) -> None:
    twins = Twins(tmp_path, histories=400, keyless=keyless)
    twins.change(2, 300, only_inserts=True)
    parts, whole = twins.merge()
    assert parts.error is None and parts.applied is not None and whole.applied is not None
    assert parts.applied == whole.applied
    assert plain(twins.tables[0].rows) == plain(twins.source.rows)
    again = twins.tables[0].task(twins.tables[0].order(twins.source.lsn))
    assert again.applied is None and again.error is None, "nothing is merged twice"


@pytest.mark.parametrize("way", ["by size", "never marked"])
@pytest.mark.parametrize("mode", list(DeleteMode))
@pytest.mark.parametrize("keyless", [False, True])
def test_the_parts_are_applied_one_after_another(
    tmp_path: Path, mode: DeleteMode, keyless: bool, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    if keyless and mode is not DeleteMode.HARD:
        pytest.skip("these modes need a key")
    twins = Twins(tmp_path, mode, histories=8 if keyless else 100, keyless=keyless)
    if way == "never marked":
        twins.never_mark()
    twins.change(1, 300, only_inserts=True)
    twins.merge()
    twins.change(2, 400)
    twins.merge_alike(*(("__commit_lsn", "__tx_index", "__commit_ts") if keyless else ()))
    assert not any(one.held(one.lake).has_deletion_vectors for one in twins.tables)
    assert not caplog.records, "it was divided"
    assert not list(tmp_path.rglob("*.buckets"))


@dataclass
class Overtaken:
    """Lets ``then`` happen before the first commits of a writer of parts, ``times`` times. ``tried``: their number."""

    monkeypatch: pytest.MonkeyPatch
    name: str
    then: Callable[[], object]
    times: int = 1
    tried: int = 0

    def __post_init__(self) -> None:
        commit = getattr(LakeWriter, self.name)

        def overtaken(writer: LakeWriter, *more: Any) -> Any:
            self.tried += 1
            if self.tried <= self.times:
                self.then()
            return commit(writer, *more)

        self.monkeypatch.setattr(LakeWriter, self.name, overtaken)


def outlasting(one: OneTable) -> OneTable:
    """The same table as another run has it: a task that outlasts that run merges with it."""
    other = OneTable(one.folder, one.table, ROW)
    other.tables, other.quality, other.writer = one.tables, one.quality, replace(one.writer, part_max_bytes=1 << 30)
    return other


def first_transaction(one: OneTable) -> int:
    """The LSN of the first one that the lake table lacks."""
    merged = one.lake_position.merged
    return min(lsn for lsn, _ in one.events if lsn > merged)


@pytest.mark.parametrize("mode", list(DeleteMode))
@pytest.mark.parametrize("how_far", ["all", "all changes", "a part", "nothing"])
def test_changes_are_merged_once_if_another_commit_is_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how_far: str, mode: DeleteMode
) -> None:
    """That of a task that outlasted its run, with the same changes or fewer; or one that merges nothing."""
    twins = Twins(tmp_path, mode, histories=60)
    twins.load()
    twins.change(2, 300)
    one, whole = twins.tables
    end = twins.source.lsn + 1
    wanted = {"all": end, "all changes": twins.source.lsn, "a part": first_transaction(one)}
    other = outlasting(one)

    def comes_first() -> None:
        if how_far != "nothing":
            assert other.merge(wanted[how_far]).applied is not None
        else:
            other.held(one.lake).commit([], txns={"another": 1})

    overtaken = Overtaken(monkeypatch, "commit_shares", comes_first)
    done = one.task(one.order(end))
    has_all = how_far.startswith("all")
    assert done.error is None and overtaken.tried == (1 if has_all else 2)
    assert (done.applied is None) is has_all and done.merged == end
    assert one.lake_position.lsn == (twins.source.lsn if how_far == "all changes" else end)
    whole.merge(end)
    assert one.contents() == whole.contents()


@pytest.mark.parametrize("keyless", [False, True])
@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("how_far", ["all", "all changes", "a part"])
def test_new_rows_are_added_once_if_another_commit_is_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how_far: str, truncates: bool, keyless: bool
) -> None:
    """Commits that add files follow upon any other: only the positions tell that the other had the same rows."""
    twins = Twins(tmp_path, histories=400, keyless=keyless)
    if truncates:
        twins.load()
        twins.truncate()
    twins.change(2, 300, only_inserts=True)
    one = twins.tables[0]
    end = twins.source.lsn + 1
    wanted = {"all": end, "all changes": twins.source.lsn, "a part": sorted({lsn for lsn, _ in one.events})[-2]}
    overtaken = Overtaken(monkeypatch, "commit_files", lambda: outlasting(one).merge(wanted[how_far]))
    done = one.task(one.order(end))
    assert done.error is None and overtaken.tried >= 1 and done.merged == end
    assert one.lake_position.lsn == (twins.source.lsn if how_far == "all changes" else end)
    assert plain(one.rows) == plain(twins.source.rows)


@pytest.mark.parametrize("mode", list(DeleteMode))
@pytest.mark.parametrize("which", [0, 1])
def test_a_task_that_is_executed_twice_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int, mode: DeleteMode
) -> None:
    """As by speculation, or after an executor was lost: either attempt's result may be the one that is collected."""
    call, attempts = ShareTask.__call__, list[ShareResult | RewrittenFile]()

    def twice(task: ShareTask, item: Share | RewriteOrder) -> ShareResult | RewrittenFile:
        both = [call(task, item) for _ in range(2)]
        attempts.append(both[1 - which])
        return both[which]

    twins = Twins(tmp_path, mode, histories=60)
    twins.load()
    twins.check(("small", UserRule(str(twins.tables[0].table.id), "after.v is distinct from 2")))
    twins.change(2, 300)
    monkeypatch.setattr(ShareTask, "__call__", twice)
    parts, whole = twins.merge()
    assert parts.error is None and whole.error is None and len(attempts) >= 3
    twins.assert_equal()
    mine, theirs = twins.quarantined
    assert mine == theirs and mine
    held = {file.path for file in twins.tables[0].held(twins.tables[0].lake).files}
    assert not held & {file.path for each in attempts for file in each.files}


@pytest.mark.parametrize("which", [1, 3])
def test_rows_that_another_writer_moved_before_the_commit_are_sought_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    """Between two tasks of a slice, or after the last one: the version that they have read is not the table's."""
    twins, call, calls = Twins(tmp_path, histories=60), ShareTask.__call__, list[int]()
    twins.load()
    twins.change(2, 300)
    one = twins.tables[0]

    def then_moved(task: ShareTask, item: Share | RewriteOrder) -> ShareResult | RewrittenFile:
        done = call(task, item)
        calls.append(1)
        if len(calls) == which:
            lake = DeltaTable.open(one.lake)
            assert lake is not None
            lake.commit([lake.write(lake.read(file)) for file in lake.files], list(lake.files), data_change=False)
        return done

    monkeypatch.setattr(ShareTask, "__call__", then_moved)
    parts, whole = twins.merge()
    assert parts.error is None and whole.error is None and len(calls) > 3
    twins.assert_equal()


def test_who_is_overtaken_again_and_again_leaves_it_to_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = Twins(tmp_path, histories=60)
    one = twins.tables[0]
    twins.load()
    twins.change(2, 300)

    def comes_first() -> None:
        outlasting(one).held(one.lake).commit([], txns={"another": overtaken.tried})

    overtaken = Overtaken(monkeypatch, "commit_shares", comes_first, 100)
    done = one.task(one.order(twins.source.lsn))
    assert done.applied is None and isinstance(done.error, TransientError)
    assert str(one.table.id) in str(done.error) and 1 < overtaken.tried < 10
    assert one.lake_position.lsn != twins.source.lsn


@pytest.mark.parametrize("in_parts", [False, True])
def test_what_another_run_has_quarantined_is_looked_at_by_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_parts: bool
) -> None:
    """Another run may have had other rules: its refused changes hold back later ones of their keys."""
    twins = Twins(tmp_path, histories=60)
    twins.load()
    twins.change(2, 300)
    one = twins.tables[not in_parts]
    other = outlasting(one)
    rule = UserRule(str(one.table.id), "after.v is distinct from 2")
    other.quality = QualityOptions(quality_rules=(("small", rule),))
    to_lsn = first_transaction(one)
    Overtaken(monkeypatch, "commit_shares" if in_parts else "write", lambda: other.merge(to_lsn))
    done = one.task(one.order(twins.source.lsn))
    assert done.applied is None and isinstance(done.error, TransientError)
    assert one.lake_position.lsn == to_lsn
    assert one.merge(twins.source.lsn).applied is not None


def test_a_slice_that_cannot_be_divided_is_merged_as_a_whole(tmp_path: Path) -> None:
    twins = Twins(tmp_path, DeleteMode.SOFT, histories=100, truncates=True, truncate_chance=0.01)
    twins.change(1, 300, only_inserts=True)
    twins.merge()
    twins.change(2, 400)
    twins.merge_alike()


@pytest.mark.parametrize("keyless", [False, True])
@pytest.mark.parametrize("order", ["in the middle", "at the end", "twice", "at the start"])
def test_a_truncate_replaces_every_row(tmp_path: Path, order: str, keyless: bool) -> None:
    twins = Twins(tmp_path, histories=8 if keyless else 100, keyless=keyless)
    twins.change(1, 200, only_inserts=True)
    twins.merge()
    before = len(twins.source.rows)
    if order != "at the start":
        twins.change(1, 400)
    twins.truncate()
    if order != "at the end":
        twins.change(1, 300)
    if order == "twice":
        twins.truncate()
        twins.change(1, 300)
    (parts, _) = twins.merge()
    assert parts.error is None and parts.applied is not None
    assert plain(twins.tables[0].rows) == plain(twins.source.rows)
    assert parts.applied.deleted == before and parts.applied.inserted == len(twins.source.rows)
    assert bool(twins.source.rows) == (order != "at the end")


@pytest.mark.parametrize("mode", list(DeleteMode))
@pytest.mark.parametrize("kind", ["changes", "inserts", "truncate", "changes that are never marked"])
def test_files_with_deletion_vectors_are_rewritten_and_replaced_like_others(
    tmp_path: Path, mode: DeleteMode, kind: str
) -> None:
    twins = Twins(tmp_path, mode, histories=400)
    twins.load()
    twins.mark_deleted(range(3, 40))
    before = len(twins.source.rows)
    if kind == "changes that are never marked":
        twins.never_mark()
    if kind == "truncate":
        twins.change(1, 200)
        twins.truncate()
    twins.change(1, 400, only_inserts=kind == "inserts")
    parts, whole = twins.merge()
    assert parts.error is None and whole.error is None
    assert parts.applied is not None and whole.applied is not None
    assert kind != "inserts" or parts.applied == whole.applied
    if mode is DeleteMode.HARD:
        assert kind != "truncate" or parts.applied.deleted == before
        assert plain(twins.tables[0].rows) == plain(twins.source.rows)
    else:
        twins.assert_equal()


@pytest.mark.parametrize("kind", ["inserts", "changes", "truncate"])
@pytest.mark.parametrize("keyless", [False, True])
def test_each_part_keeps_the_quarantine_of_the_others(tmp_path: Path, keyless: bool, kind: str) -> None:
    twins = Twins(tmp_path, histories=8 if keyless else 400, keyless=keyless)
    twins.check(("small", UserRule(str(twins.tables[0].table.id), "after.v is distinct from 2")))
    if kind == "truncate":
        twins.change(1, 200)
        twins.truncate()
    twins.change(2, 300, only_inserts=kind == "inserts")
    for one in twins.tables:
        one.writer = replace(one.writer, part_max_bytes=max(one.writer.part_max_bytes, 3 * PART_BYTES))
    parts, whole = twins.merge()
    assert parts.error is None and whole.error is None
    mine, theirs = twins.quarantined
    assert mine == theirs and len(mine) > 10
    assert quarantined(parts) == quarantined(whole) == QuarantineReport(len(mine))
    positions = ("__commit_lsn", "__tx_index", "__commit_ts") if keyless else ()
    twins.assert_equal(*positions)


@pytest.mark.parametrize("mode", list(DeleteMode))
def test_a_slice_of_truncates_only(tmp_path: Path, mode: DeleteMode) -> None:
    twins = Twins(tmp_path, mode, histories=100)
    twins.load()
    twins.tables[0].writer = replace(twins.tables[0].writer, part_max_bytes=1)
    before = len(twins.source.rows)
    twins.truncate()
    parts, whole = twins.merge()
    assert parts.error is None and whole.error is None
    if mode is DeleteMode.HARD:
        assert parts.applied is not None and not twins.tables[0].rows
    else:
        assert parts.applied is not None and twins.tables[0].contents() == twins.tables[1].contents()
        assert len(twins.tables[0].rows) == before, "deleted rows are kept"


@pytest.mark.parametrize("mode", list(DeleteMode))
def test_parts_mark_rows_as_the_whole_does(tmp_path: Path, mode: DeleteMode) -> None:
    twins = Twins(tmp_path, mode, histories=400)
    twins.load()
    twins.mark_rows()
    for _ in range(2):
        twins.change(2, 400)
        parts, whole = twins.merge()
        assert parts.error is None and whole.error is None
        assert parts.applied is not None and whole.applied is not None
        mine, theirs = parts.applied, whole.applied
        assert (mine.events, mine.inserted, mine.updated, mine.deleted) == (
            *(theirs.events, theirs.inserted, theirs.updated, theirs.deleted),
        )
        twins.assert_equal()
        if mode is DeleteMode.HARD:
            assert plain(twins.tables[0].rows) == plain(twins.source.rows)
    assert all(one.held(one.lake).has_deletion_vectors for one in twins.tables)


@pytest.mark.parametrize("way", ["marked", "never marked"])
@pytest.mark.parametrize("mode", list(DeleteMode))
def test_the_tasks_write_the_change_data_feed_of_the_whole(tmp_path: Path, mode: DeleteMode, way: str) -> None:
    twins = Twins(tmp_path, mode, histories=100)
    twins.load()
    if way == "marked":
        twins.mark_rows()
    else:
        twins.never_mark()
    for one in twins.tables:
        lake = one.held(one.lake)
        lake.commit(definition=lake.definition.with_change_feed())
    twins.change(2, 300)
    parts, whole = twins.merge()
    assert parts.error is None and whole.error is None
    mine, theirs = (fed(one, outcome) for one, outcome in zip(twins.tables, (parts, whole), strict=True))
    assert mine == theirs and len({kind for kind, _ in mine}) > 1


def fed(one: OneTable, outcome: SliceOutcome) -> list[tuple[str, str]]:
    """The changes of the version that an outcome committed, as deltalake reads them."""
    assert outcome.applied is not None
    version = outcome.applied.version
    rows = pa.table(deltalake.DeltaTable(one.lake).load_cdf(version, version)).to_pylist()
    own = ("_change_type", "_commit_version", "_commit_timestamp")
    plain_rows = [(row["_change_type"], {name: row[name] for name in row if name not in own}) for row in rows]
    return sorted((kind, repr(sorted(row.items()))) for kind, row in plain_rows)


@pytest.mark.parametrize("few", [0.0, 1.0])
def test_parts_of_a_keyless_table_mark_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: float) -> None:
    # Whether whole files are read, or some columns first and then single rows: none, or all of them count as few.
    monkeypatch.setattr(multiset_rows, "SMALL_BYTES", 0)
    monkeypatch.setattr(multiset_rows, "_FEW", few)
    twins = Twins(tmp_path, histories=8, keyless=True)
    twins.load()
    twins.mark_rows()
    for _ in range(2):
        twins.change(2, 400)
        parts, whole = twins.merge()
        assert parts.error is None and whole.error is None
        assert plain(twins.tables[0].rows) == plain(twins.tables[1].rows) == plain(twins.source.rows)
