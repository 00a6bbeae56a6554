"""Random histories: after every round the lake table is the source table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_core.sink.delta.changelog import append
from cdc_core.sink.delta.merge import MergeFacts, Round, merge_round
from cdc_core.sink.delta.snapshot import write_snapshot
from tests.delta.source_model import BAG, ROW, TABLE, SourceTable, plain
from tests.support.spark import AT, change_schema, frame, lake_rows, lake_schema

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("WAL2LAKE_SEED", "20261121"))


class Follower:
    """Appends a source's transactions and merges them, as the engine would."""

    def __init__(self, spark: Any, folder: Path, source: SourceTable) -> None:
        self.spark, self.source = spark, source
        self.table = BAG if source.bag else TABLE
        self.lake, self.changelog = str(folder / "lake"), str(folder / "changelog")
        self.merged = source.lsn

    def take_snapshot(self) -> None:
        rows = [{**row, "__commit_ts": AT} for row in self.source.snapshot()]
        write_snapshot(frame(self.spark, rows, lake_schema(ROW)), self.lake, "slot", self.table.id, token=1)

    def change(self, transactions: int, statements: int, only_inserts: bool = False) -> int:
        made = [self.source.next_transaction(statements, only_inserts) for _ in range(transactions)]
        rows = [row for transaction in made for row in transaction]
        whole = max(row["__commit_lsn"] for row in rows)
        append(frame(self.spark, rows, change_schema(ROW)), self.changelog, "slot", self.table.id, whole)
        return len(rows)

    def next_round(self) -> Round:
        todo = Round("slot", self.table, self.changelog, self.lake, self.merged, self.source.lsn, token=1)
        self.merged = self.source.lsn
        return todo

    def merge(self) -> MergeFacts | None:
        return merge_round(self.spark, self.next_round())

    def assert_equal(self) -> None:
        assert plain(lake_rows(self.lake)) == plain(self.source.rows)


@pytest.fixture
def follow(spark: Any, tmp_path: Path) -> Iterator[Any]:
    yield lambda **settings: Follower(spark, tmp_path, SourceTable(SEED, **settings))


def test_keyed_histories_follow_the_source(follow: Any) -> None:
    follower = follow(histories=150)
    follower.source.next_transaction(300)
    follower.take_snapshot()
    follower.assert_equal()
    for statements in (900, 120):
        follower.change(6, statements)
        facts = follower.merge()
        assert facts is not None and facts.inserted and facts.updated and facts.deleted
        follower.assert_equal()


def test_keyed_histories_with_truncates_follow_the_source(follow: Any) -> None:
    follower = follow(histories=20, truncates=True)
    follower.source.next_transaction(60)
    follower.take_snapshot()
    follower.change(3, 80)
    assert follower.source.truncates and follower.merge() is not None
    follower.assert_equal()


def test_bag_follows_the_source(follow: Any) -> None:
    follower = follow(histories=2, bag=True)
    follower.source.next_transaction(80)
    follower.take_snapshot()
    follower.change(3, 150)
    before = len(lake_rows(follower.lake))
    facts = follower.merge()
    follower.assert_equal()
    assert facts is not None and facts.updated == 0
    assert facts.inserted - facts.deleted == len(follower.source.rows) - before


def test_bag_with_truncates_follows_the_source(follow: Any) -> None:
    follower = follow(histories=2, bag=True, truncates=True)
    follower.source.next_transaction(40)
    follower.take_snapshot()
    follower.change(3, 150)
    follower.merge()
    follower.assert_equal()


def test_a_round_of_inserts_is_appended(follow: Any) -> None:
    follower = follow(histories=40)
    follower.take_snapshot()
    events = follower.change(2, 50, only_inserts=True)
    facts = follower.merge()
    assert facts == MergeFacts(facts.version, events, events, 0, 0)
    follower.assert_equal()


def test_the_same_round_again_commits_nothing(follow: Any, spark: Any) -> None:
    follower = follow(histories=10)
    follower.source.next_transaction(30)
    follower.take_snapshot()
    follower.change(2, 40)
    first = follower.next_round()
    assert merge_round(spark, first) is not None
    follower.change(1, 40)
    wider = replace(follower.next_round(), from_lsn=first.from_lsn)
    assert merge_round(spark, first) is None
    facts = merge_round(spark, wider)
    assert facts is not None
    follower.assert_equal()
    assert merge_round(spark, wider) is None
    assert merge_round(spark, replace(wider, from_lsn=wider.to_lsn, to_lsn=wider.to_lsn + 50)) is None
    assert lake_rows(follower.lake, version=facts.version) == lake_rows(follower.lake)
