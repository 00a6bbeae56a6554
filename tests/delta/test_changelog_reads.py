"""Snapshot rows in the changelog, exactly once a snapshot; and old changes that leave it, none too early."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.sink.delta.change_slice import read_slice
from cdc_core.sink.delta.changelog import append, complete_reads
from cdc_core.sink.delta.commit_log import COMPLETE, changelog_position, lake_position, table_version
from cdc_core.sink.delta.merge import Round, merge_round
from cdc_core.sink.delta.retention import DAY_US, expire_changes
from cdc_core.sink.delta.snapshot import write_snapshot
from tests.delta.source_model import ROW, TABLE
from tests.support.spark import AT, change, change_schema, frame, lake_rows, lake_schema, row_type

pytestmark = pytest.mark.spark
T = TABLE.id
NOW = int((AT + timedelta(days=10)).timestamp()) * 1_000_000
VALUES = {"h": 0, "v": 1, "big": "b", "num": None, "__rescued": None}


class Lake:
    """One table's two sides."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.lake, self.changelog = str(folder / "lake"), str(folder / "changelog")

    def snapshot(self, token: int, *keys: str, row: pa.StructType = ROW, **values: Any) -> None:
        at = {"__commit_lsn": token - 1, "__tx_index": -1, "__commit_ts": AT}
        rows = [{**VALUES, **values, "k": key, **at} for key in keys]
        write_snapshot(frame(self.spark, rows, lake_schema(row)), self.lake, "slot", T, token=token)

    def complete(self) -> int | None:
        return complete_reads(self.spark, self.lake, self.changelog, "slot", T)

    def add(self, complete_to: int | None, *rows: tuple[int, int, str], at: datetime = AT) -> None:
        made = [{**change("c", lsn, n, None, {**VALUES, "k": key}), "__commit_ts": at} for lsn, n, key in rows]
        append(frame(self.spark, made, change_schema(ROW)), self.changelog, "slot", T, complete_to)

    def merge(self, to: int, token: int) -> None:
        assert merge_round(self.spark, Round("slot", TABLE, self.changelog, self.lake, 0, to, token=token)) is not None

    def expire(self, days: int, now: int = NOW) -> int | None:
        merged = lake_position(self.spark, self.lake, "slot", T).lsn
        return expire_changes(self.spark, self.changelog, "slot", T, merged, now, days)

    @property
    def position(self) -> Any:
        return changelog_position(self.spark, self.changelog, "slot", T)

    def events(self) -> list[tuple[str, int, str]]:
        found = lake_rows(self.changelog)
        return sorted((row["__op"], row["__commit_lsn"], row["after"]["k"]) for row in found)


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path)


def test_each_snapshot_in_force_is_in_the_changelog_once(lake: Lake) -> None:
    assert lake.complete() is None
    assert table_version(lake.spark, lake.changelog) == -1
    lake.snapshot(6, "a", "b", big=None, __rescued=[("num", "NaN")])
    assert lake.complete() is not None
    assert lake.complete() is None
    assert lake.events() == [("r", 5, "a"), ("r", 5, "b")]
    # The position of a changelog knows nothing of reads, and neither do merges.
    assert lake.position is None
    lake.add(10, (10, 0, "c"))
    assert lake.position == (10, COMPLETE)
    assert read_slice(lake.spark, lake.changelog, 0, 10).count() == 1
    lake.merge(10, token=6)
    assert lake.complete() is None
    assert sorted(row["k"] for row in lake_rows(lake.lake)) == ["a", "b", "c"]
    # A second snapshot has its own reads, one without a row has none.
    lake.snapshot(20, "a")
    assert lake.complete() is not None
    lake.snapshot(30)
    assert lake.complete() is not None
    assert lake.complete() is None
    # Nor has one that was merged into before its reads were asked for: the lake no longer shows it alone.
    lake.snapshot(40, "z")
    lake.merge(10, token=40)
    assert lake.complete() is None
    assert lake.events() == [("c", 10, "c"), ("r", 5, "a"), ("r", 5, "b"), ("r", 19, "a")]


def test_a_read_looks_like_a_change(lake: Lake) -> None:
    row = row_type(**{"h": pa.int32(), "k": pa.string(), "a name, with spaces": pa.int64()})
    lake.snapshot(6, "a", row=row, __rescued=[("num", "NaN")], **{"a name, with spaces": 7})
    lake.complete()
    (found,) = lake.spark.read.format("delta").load(lake.changelog).collect()
    assert found.asDict(recursive=True) == {
        "__op": "r",
        "__commit_lsn": 5,
        "__tx_index": -1,
        "__lsn": 5,
        "__xid": None,
        "__commit_ts": AT.replace(tzinfo=None),
        "__unchanged": [],
        "before": None,
        "after": {"h": 0, "k": "a", "a name, with spaces": 7, "__rescued": {"num": "NaN"}},
    }


def test_old_merged_changes_leave_once_a_day(lake: Lake) -> None:
    assert lake.expire(1) is None
    lake.snapshot(6, "a")
    lake.complete()
    lake.add(10, (10, 0, "b"), (8, 0, "c"))
    # Nothing is merged yet: only what came from the lake may go. With nothing to go there is no commit.
    assert lake.expire(20) is None
    assert lake.expire(1) is not None
    assert lake.events() == [("c", 8, "c"), ("c", 10, "b")]
    assert lake.complete() is None
    # What stays: the recent, what is not merged, and of a transaction that the last batch ended in, what tells so.
    lake.add(12, (12, 0, "d"), at=AT + timedelta(days=9))
    lake.add(14, (14, 0, "e"), (16, 0, "f"))
    lake.merge(12, token=6)
    assert lake.expire(3) is None, "the table was cleared on this day"
    assert lake.expire(3, NOW + DAY_US) is not None
    assert lake.events() == [("c", 12, "d"), ("c", 14, "e"), ("c", 16, "f")]
    lake.merge(16, token=6)
    assert lake.expire(3, NOW + 2 * DAY_US) is not None
    assert lake.events() == [("c", 12, "d"), ("c", 16, "f")]
    assert lake.position == (16, 0)
    assert sorted(row["k"] for row in lake_rows(lake.lake)) == list("abcdef")
