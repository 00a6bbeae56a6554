"""Random histories: after every slice, applied by copy-on-write or by marks, the lake's rows are the source's."""

from __future__ import annotations

import os
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core.lake.apply.changes import Changes, apply, prepare
from cdc_core.lake.apply.keyed import KeyedChanges
from cdc_core.lake.apply.multiset_rows import MultisetChanges
from cdc_core.lake.apply.rewrite import Rewrite
from cdc_core.lake.delta.conform import plain_schema
from tests.delta.source_model import KEYLESS, ROW, TABLE, SourceTable, plain
from tests.support.content import MemoryContent
from tests.support.hows import HOWS, prepared, ways_of
from tests.support.sampling import examples
from tests.support.spark import change_schema, lake_schema

SEED = int(os.environ.get("WAL2LAKE_SEED", "20261121"))
LAKE = plain_schema(lake_schema(ROW))


class Follower:
    """Applies a source's transactions to a table in memory, as the engine would."""

    def __init__(self, source: SourceTable, files: int = 3, how: str = "rewrite") -> None:
        self.source, self.chance, self.how = source, random.Random(source.seed), how
        self.table = KEYLESS if source.keyless else TABLE
        self.content = prepared(MemoryContent(LAKE), how)
        rows = source.snapshot()
        for part in range(files):
            if rows[part::files]:
                self.content.add(pa.Table.from_pylist(rows[part::files], schema=LAKE))

    def transactions(self, count: int, statements: int, only_inserts: bool = False) -> list[dict[str, Any]]:
        made = [self.source.next_transaction(statements, only_inserts) for _ in range(count)]
        return [row for transaction in made for row in transaction]

    def prepare(self, rows: list[dict[str, Any]], snapshot: str | None = None) -> Changes:
        mixed = self.chance.sample(rows, len(rows))
        return prepare(pa.Table.from_pylist(mixed, schema=change_schema(ROW)), self.table, LAKE, snapshot)

    def apply(self, rows: list[dict[str, Any]], snapshot: str | None = None) -> Rewrite:
        changes = self.prepare(rows, snapshot)
        rewrite = apply(self.content, changes, ways=ways_of(self.how, self.chance, self.content))
        if isinstance(changes, KeyedChanges | MultisetChanges):
            assert {each.path for each in rewrite.removed} <= {each.path for each in changes.candidates(self.content)}
        before = len(self.content.rows)
        self.content.commit(rewrite)
        assert len(self.content.rows) - before == rewrite.inserted - rewrite.deleted
        return rewrite

    def assert_equal(self) -> None:
        assert plain(self.content.rows) == plain(self.source.rows)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("keyless", [False, True])
def test_histories_follow_the_source(keyless: bool, truncates: bool, how: str) -> None:
    source = SourceTable(SEED, histories=2 if keyless else 60, keyless=keyless, truncates=truncates)
    source.next_transaction(200)
    follower = Follower(source, how=how)
    for statements in (150, 20, 1, 80):
        rewrite = follower.apply(follower.transactions(5, statements))
        assert not (keyless and rewrite.updated)
        follower.assert_equal()


@settings(max_examples=examples(80), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    histories=st.integers(1, 6),
    keyless=st.booleans(),
    truncates=st.booleans(),
    start=st.integers(0, 20),
    rounds=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 25)), min_size=1, max_size=4),
    files=st.integers(1, 4),
    how=st.sampled_from(HOWS),
)
def test_any_history_in_any_cuts(
    seed: int,
    histories: int,
    keyless: bool,
    truncates: bool,
    start: int,
    rounds: list[tuple[int, int]],
    files: int,
    how: str,
) -> None:
    source = SourceTable(seed, histories, keyless, truncates)
    if start:
        source.next_transaction(start)
    follower = Follower(source, files, how)
    for transactions, statements in rounds:
        follower.apply(follower.transactions(transactions, statements))
        follower.assert_equal()


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    histories=st.integers(1, 5),
    keyless=st.booleans(),
    transactions=st.integers(1, 8),
    statements=st.integers(1, 8),
    how=st.sampled_from(HOWS),
    data=st.data(),
)
def test_the_overlap_of_a_snapshot(
    seed: int, histories: int, keyless: bool, transactions: int, statements: int, how: str, data: st.DataObject
) -> None:
    """The lake starts in the midst of a stream that is read from its beginning, commits and xids in different order."""
    source = SourceTable(seed, histories, keyless)
    source.next_transaction(10)
    xids = data.draw(st.permutations(range(2**32 - 3, 2**32 - 3 + transactions)))
    shown = data.draw(st.integers(0, transactions))
    stream: list[dict[str, Any]] = []
    follower = Follower(source, how=how)
    for number, xid in enumerate(xids):
        if number == shown:
            follower = Follower(source, how=how)
        stream += [{**row, "__xid": xid % 2**32} for row in source.next_transaction(statements)]
    if shown == transactions:
        follower = Follower(source, how=how)
    seen, low, high = set(xids[:shown]), min(xids), max(xids) + 1
    xmax = max(seen, default=low - 1) + 1
    running = [xid for xid in range(low, xmax) if xid not in seen]
    xmin = min(running, default=xmax)
    assert xmin <= xmax <= high
    if stream:
        follower.apply(stream, f"{xmin}:{xmax}:{','.join(map(str, running))}")
    follower.assert_equal()
    later = follower.transactions(2, 5)
    if later:
        follower.apply(later)
        follower.assert_equal()


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 10**6), histories=st.integers(1, 6), statements=st.integers(1, 40), how=st.sampled_from(HOWS)
)
def test_a_slice_applied_again_changes_nothing(seed: int, histories: int, statements: int, how: str) -> None:
    source = SourceTable(seed, histories)
    source.next_transaction(15)
    follower = Follower(source, how=how)
    rows = follower.transactions(2, statements)
    changes = follower.prepare(rows)
    if not isinstance(changes, KeyedChanges):
        return
    follower.apply(rows)
    assert apply(follower.content, changes).changes_nothing
    assert apply(follower.content, follower.prepare(rows)).changes_nothing
    follower.assert_equal()


def test_rows_of_inserts_alone_are_appended() -> None:
    follower = Follower(SourceTable(SEED, histories=40))
    rewrite = follower.apply(follower.transactions(2, 50, only_inserts=True))
    assert rewrite.inserted and not (rewrite.removed or rewrite.updated or rewrite.deleted)
    follower.assert_equal()
