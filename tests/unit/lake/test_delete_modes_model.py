"""Random histories: a lake table that keeps deleted rows holds what a row-wise model of it holds, in whatever cuts."""

from __future__ import annotations

import os
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core.lake.apply.changes import Changes, apply
from cdc_core.lake.apply.keyed import KeyedChanges
from cdc_core.lake.apply.rewrite import Rewrite
from cdc_core.lake.apply.versioned import VersionedChanges
from cdc_core.lake.delete_columns import as_live
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.schema.lake_schema import lake_schema
from tests.delta.kept_model import KeptModel
from tests.delta.source_model import ROW, TABLE, SourceTable
from tests.support.content import MemoryContent
from tests.support.hows import HOWS, prepared, ways_of
from tests.support.sampling import examples
from tests.support.spark import change_schema
from tests.support.spark import lake_schema as bare_schema
from tests.support.truncates import applied
from tests.support.truncates import prepared as prepared_slice

pytestmark = pytest.mark.slow
SEED = int(os.environ.get("WAL2LAKE_SEED", "20261121"))
KEY = ("h", "k")
IMAGE = ("h", "k", "v", "big", "num", "__rescued")


class Follower:
    """Applies a source's transactions to a lake table in memory, and to the model of it."""

    def __init__(self, source: SourceTable, mode: DeleteMode, files: int = 3, how: str = "rewrite") -> None:
        self.source, self.mode, self.chance, self.how = source, mode, random.Random(source.seed), how
        self.content = prepared(MemoryContent(lake_schema(ROW, mode)), how)
        self.model = KeptModel(KEY)
        rows = source.snapshot()
        self.model.take(rows, (source.lsn, -1, None))
        for part in range(files):
            if rows[part::files]:
                self.content.add(as_live(pa.Table.from_pylist(rows[part::files], schema=bare_schema(ROW)), mode))

    def transactions(self, count: int, statements: int) -> list[dict[str, Any]]:
        return [row for _ in range(count) for row in self.source.next_transaction(statements)]

    def prepare(self, rows: list[dict[str, Any]], snapshot: str | None = None) -> Changes:
        return prepared_slice(self.mixed(rows), TABLE, self.content.schema, snapshot)

    def mixed(self, rows: list[dict[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist(self.chance.sample(rows, len(rows)), schema=change_schema(ROW))

    def apply(self, rows: list[dict[str, Any]], snapshot: str | None = None) -> Rewrite:
        changes = self.prepare(rows, snapshot)
        rewrite = applied(self.content, changes, self.mixed(rows), ways_of(self.how, self.chance, self.content))
        if isinstance(changes, KeyedChanges | VersionedChanges):
            assert {each.path for each in rewrite.removed} <= {each.path for each in changes.candidates(self.content)}
        before = len(self.content.rows)
        self.content.commit(rewrite)
        assert len(self.content.rows) - before == rewrite.inserted
        return rewrite

    def follow(self, transactions: int, statements: int) -> Rewrite:
        rows = self.transactions(transactions, statements)
        for row in rows:
            self.model.apply(row)
        return self.apply(rows)

    def assert_equal(self) -> None:
        (assert_soft if self.mode is DeleteMode.SOFT else assert_history)(self.content.rows, self.model)


def values(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in IMAGE}


def position(row: dict[str, Any]) -> tuple[int, int]:
    return row["__commit_lsn"], row["__tx_index"]


def assert_soft(rows: list[dict[str, Any]], model: KeptModel) -> None:
    found = {(row["h"], row["k"]): (values(row), row["__deleted"], position(row)) for row in rows}
    assert len(found) == len(rows)
    assert found == model.soft


def assert_history(rows: list[dict[str, Any]], model: KeptModel) -> None:
    found = []
    for row in rows:
        assert row["__valid_from_lsn"] == row["__commit_lsn"] and row["__valid_from"] == row["__commit_ts"]
        ended = None if row["__valid_to_lsn"] is None else (row["__valid_to_lsn"], row["__valid_to_index"])
        assert row["__current"] is (ended is None)
        found.append((values(row), position(row), ended))
    wanted = [(v.values, v.began[:2], None if v.ended is None else v.ended[:2]) for v in model.versions]
    assert sorted(found, key=_by_key_and_time) == sorted(wanted, key=_by_key_and_time)


def _by_key_and_time(version: tuple[Any, ...]) -> tuple[Any, ...]:
    return version[0]["h"], version[0]["k"], version[1]


MODES = [DeleteMode.SOFT, DeleteMode.HISTORY]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_histories_follow_the_model(mode: DeleteMode, truncates: bool, how: str) -> None:
    source = SourceTable(SEED, histories=60, truncates=truncates)
    source.next_transaction(200)
    follower = Follower(source, mode, how=how)
    for statements in (150, 20, 1, 80):
        follower.follow(5, statements)
        follower.assert_equal()


@settings(max_examples=examples(80), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    mode=st.sampled_from(MODES),
    how=st.sampled_from(HOWS),
    histories=st.integers(1, 6),
    truncate_chance=st.sampled_from([0.0, 0.02, 0.15]),
    start=st.integers(0, 20),
    rounds=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 25)), min_size=1, max_size=4),
    files=st.integers(1, 4),
)
def test_any_history_in_any_cuts(
    seed: int,
    mode: DeleteMode,
    how: str,
    histories: int,
    truncate_chance: float,
    start: int,
    rounds: list[tuple[int, int]],
    files: int,
) -> None:
    source = SourceTable(seed, histories, truncates=truncate_chance > 0, truncate_chance=truncate_chance)
    if start:
        source.next_transaction(start)
    follower = Follower(source, mode, files, how)
    for transactions, statements in rounds:
        follower.follow(transactions, statements)
        follower.assert_equal()


@settings(max_examples=examples(100), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    mode=st.sampled_from(MODES),
    how=st.sampled_from(HOWS),
    histories=st.integers(1, 5),
    transactions=st.integers(1, 8),
    statements=st.integers(1, 8),
    data=st.data(),
)
def test_the_overlap_of_a_snapshot(
    seed: int, mode: DeleteMode, how: str, histories: int, transactions: int, statements: int, data: st.DataObject
) -> None:
    """The lake starts in the midst of a stream that is read from its beginning."""
    source = SourceTable(seed, histories)
    source.next_transaction(10)
    shown = data.draw(st.integers(0, transactions))
    stream: list[dict[str, Any]] = []
    follower = Follower(source, mode, how=how)
    for xid in range(transactions):
        if xid == shown:
            follower = Follower(source, mode, how=how)
        made = [{**row, "__xid": 50 + xid} for row in source.next_transaction(statements)]
        for row in made if xid >= shown else ():
            follower.model.apply(row)
        stream += made
    if shown == transactions:
        follower = Follower(source, mode, how=how)
    if stream:
        follower.apply(stream, f"{50 + shown}:{50 + shown}:")
    follower.assert_equal()
    follower.follow(2, 5)
    follower.assert_equal()


def keeps_key(row: dict[str, Any]) -> bool:
    return row["before"] is None or all(row["before"][name] == row["after"][name] for name in KEY)


@settings(max_examples=examples(80), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    mode=st.sampled_from(MODES),
    how=st.sampled_from(HOWS),
    histories=st.integers(1, 6),
    statements=st.integers(1, 40),
    cut=st.floats(0, 1),
)
def test_changes_that_the_lake_has_already_change_nothing(
    seed: int, mode: DeleteMode, how: str, histories: int, statements: int, cut: float
) -> None:
    """A slice applied again, or begun too early, by the positions of the rows that are there."""
    source = SourceTable(seed, histories)
    source.next_transaction(15)
    follower = Follower(source, mode, how=how)
    rows = [row for row in follower.transactions(2, statements) if row["__op"] == "u" and keeps_key(row)]
    early = rows[: int(len(rows) * cut)]
    for row in rows:
        follower.model.apply(row)
    if early:
        follower.apply(early)
    if rows:
        follower.apply(rows)
        assert apply(follower.content, follower.prepare(rows)).changes_nothing
    follower.assert_equal()
