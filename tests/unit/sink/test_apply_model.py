"""Random histories: after every slice that copy-on-write applies, the lake's rows are the source's."""

from __future__ import annotations

import os
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core.sink.delta.apply import Rewrite, apply, bytes_to_scan
from cdc_core.sink.delta.changes import Changes, Road, prepare
from cdc_core.sink.delta.conform import plain_schema
from tests.delta.source_model import BAG, ROW, TABLE, SourceTable, plain
from tests.support.content import MemoryContent
from tests.support.spark import change_schema, lake_schema

SEED = int(os.environ.get("WAL2LAKE_SEED", "20261121"))
LAKE = plain_schema(lake_schema(ROW))


class Follower:
    """Applies a source's transactions to a table in memory, as the engine would."""

    def __init__(self, source: SourceTable, files: int = 3) -> None:
        self.source, self.chance = source, random.Random(source.seed)
        self.table = BAG if source.bag else TABLE
        self.content = MemoryContent(LAKE)
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
        rewrite = apply(self.content, changes)
        assert changes.road is Road.REPLACE or rewrite.bytes_rewritten <= bytes_to_scan(self.content, changes)
        before = len(self.content.rows)
        self.content.commit(rewrite)
        assert len(self.content.rows) - before == rewrite.inserted - rewrite.deleted
        return rewrite

    def assert_equal(self) -> None:
        assert plain(self.content.rows) == plain(self.source.rows)


@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("bag", [False, True])
def test_histories_follow_the_source(bag: bool, truncates: bool) -> None:
    source = SourceTable(SEED, histories=2 if bag else 60, bag=bag, truncates=truncates)
    source.next_transaction(200)
    follower = Follower(source)
    for statements in (150, 20, 1, 80):
        rewrite = follower.apply(follower.transactions(5, statements))
        assert not (bag and rewrite.updated)
        follower.assert_equal()


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    histories=st.integers(1, 6),
    bag=st.booleans(),
    truncates=st.booleans(),
    start=st.integers(0, 20),
    rounds=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 25)), min_size=1, max_size=4),
    files=st.integers(1, 4),
)
def test_any_history_in_any_cuts(
    seed: int,
    histories: int,
    bag: bool,
    truncates: bool,
    start: int,
    rounds: list[tuple[int, int]],
    files: int,
) -> None:
    source = SourceTable(seed, histories, bag, truncates)
    if start:
        source.next_transaction(start)
    follower = Follower(source, files)
    for transactions, statements in rounds:
        follower.apply(follower.transactions(transactions, statements))
        follower.assert_equal()
