"""How a slice reaches its lake table: files rewritten, or rows marked."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_core.errors import CommitConflictError
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.schema.features import FeaturePolicy
from cdc_core.schema.changes import LakeFeatures
from tests.delta.source_model import ROW, TABLE, SourceTable, plain
from tests.support import damaged
from tests.support.damaged import KEYED
from tests.support.one_table import OneTable
from tests.support.spark import change

LARGE, SMALL = 1, 1 << 30


def changed(one: OneTable, source: SourceTable, statements: int = 20) -> None:
    rows = source.next_transaction(statements)
    one.append([{**row, "__lsn": row["__commit_lsn"]} for row in rows], source.lsn)


@pytest.fixture
def source() -> SourceTable:
    return SourceTable(7, histories=200)


@pytest.fixture
def one(tmp_path: Path, source: SourceTable) -> OneTable:
    made = OneTable(tmp_path, TABLE, ROW)
    source.next_transaction(100)
    made.snapshot(0, [dict(row) for row in source.rows], source.lsn)
    changed(made, source)
    return made


@pytest.mark.parametrize(
    ("features", "most", "expected"),
    [
        (LakeFeatures.AUTO, SMALL, "rewritten"),
        (LakeFeatures.AUTO, LARGE, "marked"),
        (LakeFeatures.WIDEST, SMALL, "rewritten"),
        (LakeFeatures.WIDEST, LARGE, "rewritten"),
    ],
)
@pytest.mark.parametrize("part_max_bytes", [1 << 30, 100])
def test_the_way_follows_from_size_and_features(
    one: OneTable, source: SourceTable, features: LakeFeatures, most: int, expected: str, part_max_bytes: int
) -> None:
    policy = FeaturePolicy(features, most)
    one.writer = replace(one.writer, rewrite_max_bytes=most, features=policy, part_max_bytes=part_max_bytes)
    found = one.task(one.order(source.lsn))
    assert found.error is None
    lake = DeltaTable.open(one.lake)
    assert lake is not None
    assert lake.has_deletion_vectors == (expected == "marked")
    if part_max_bytes > 100:  # the files of many parts may be compacted at once
        assert any(file.vector is not None for file in lake.files) == (expected == "marked")
    assert plain(one.rows) == plain(source.rows)


@pytest.mark.parametrize(("count", "is_marked"), [(300, False), (20_000, True)])
def test_only_the_smallest_files_are_rewritten_by_default(tmp_path: Path, count: int, is_marked: bool) -> None:
    """A rewritten file stays on disk for an hour: a file of more than 64 KiB is not written again for one row."""
    one, texts = OneTable(tmp_path, KEYED, damaged.ROW), random.Random(1)
    one.snapshot(1, [damaged.row(n, f"{texts.random()}") for n in range(count)], lsn=1)
    before = sum(file.size for file in one.held(one.lake).files)
    damaged.append(one, [change("u", 10, 0, None, damaged.row(7, "new"))], 10)
    assert one.merge(10, token=1).applied is not None
    files = one.held(one.lake).files
    assert any(file.vector is not None for file in files) is is_marked is (before > 64 << 10)
    assert sorted(row["id"] for row in one.rows) == list(range(count))


def test_a_table_that_has_vectors_is_marked_under_every_policy(one: OneTable, source: SourceTable) -> None:
    one.mark_rows()
    one.merge(source.lsn)
    changed(one, source)
    one.writer = replace(one.writer, rewrite_max_bytes=1, features=FeaturePolicy(LakeFeatures.WIDEST))
    one.merge(source.lsn)
    assert plain(one.rows) == plain(source.rows)


def test_the_feature_is_enabled_once_and_reported_to_the_run(one: OneTable, source: SourceTable) -> None:
    one.mark_rows()
    told = []
    for _ in range(3):
        told.append(one.merge(source.lsn).marks)
        changed(one, source)
    assert told == [True, False, False]


def test_what_was_read_before_the_feature_came_on_is_decided_again(
    one: OneTable, source: SourceTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer commits right after the feature was enabled: the slice is applied to what it left."""
    enable = DeltaTable.enable_vectors

    def and_another(table: DeltaTable) -> bool:
        done = enable(table)
        if done:
            other = DeltaTable.open(table.path)
            assert other is not None
            kept = [other.write(other.read(file)) for file in other.files]
            other.commit(kept, list(other.files), data_change=False)
            table.refresh()
        return done

    monkeypatch.setattr(DeltaTable, "enable_vectors", and_another)
    one.mark_rows()
    one.merge(source.lsn)
    assert plain(one.rows) == plain(source.rows)


def test_a_slice_is_not_marked_twice_by_two_writers(one: OneTable, source: SourceTable, tmp_path: Path) -> None:
    one.mark_rows()
    one.merge(source.lsn)
    changed(one, source)
    commit, other = DeltaTable.commit, OneTable(tmp_path, TABLE, ROW)
    other.mark_rows()
    is_first = [True]

    def late(table: DeltaTable, *given: object, **more: object) -> int:
        if is_first.pop() if is_first else False:
            other.merge(source.lsn)
        return commit(table, *given, **more)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DeltaTable, "commit", late)
        one.merge(source.lsn)
    assert plain(one.rows) == plain(source.rows)
    lake = DeltaTable.open(one.lake)
    assert lake is not None
    with pytest.raises(CommitConflictError):
        stale = DeltaTable.open_version(one.lake, lake.version - 1)
        assert stale is not None
        stale.commit([], [stale.files[0]])
