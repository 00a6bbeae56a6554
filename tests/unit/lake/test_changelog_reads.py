"""Snapshot rows in the changelog, exactly once a snapshot; and old changes that leave it, none too early."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.retention import DAY_US, expire_changes
from cdc_core.lake.positions import COMPLETE
from cdc_core.lake.stores.changelog import read_changes
from cdc_core.lake.stores.snapshot_events import complete_snapshot_events
from tests.delta.source_model import ROW, TABLE
from tests.support.one_table import SLOT, OneTable
from tests.support.spark import AT, change, lake_rows, row_type

T = TABLE.id
NOW = int((AT + timedelta(days=10)).timestamp()) * 1_000_000
VALUES = {"h": 0, "v": 1, "big": "b", "num": None, "__rescued": None}


class Lake:
    """One table's two sides."""

    def __init__(self, folder: Path, row: pa.StructType = ROW) -> None:
        self.one = OneTable(folder, TABLE, row)

    def snapshot(self, token: int, *keys: str, **values: Any) -> None:
        self.one.snapshot(token, [{**VALUES, **values, "k": key} for key in keys], lsn=token - 1)

    def complete(self) -> int | None:
        return complete_snapshot_events(self.one.lake, self.one.changelog, SLOT, T, 1)

    def add(
        self,
        whole: int | None,
        *rows: tuple[int, int, str],
        at: datetime = AT,
        cut: tuple[int, int] | None = None,
    ) -> None:
        made = [{**change("c", lsn, n, None, {**VALUES, "k": key}), "__commit_ts": at} for lsn, n, key in rows]
        self.one.append(made, whole, cut)

    def merge(self, to: int, token: int) -> None:
        assert self.one.merge(to, token).applied is not None

    def expire(self, days: int, now: int = NOW) -> int | None:
        return expire_changes(self.one.changelog, SLOT, T, self.one.lake_position.lsn, now, days)

    @property
    def events(self) -> list[tuple[str, int, str]]:
        found = lake_rows(self.one.changelog)
        return sorted((row["__op"], row["__commit_lsn"], row["after"]["k"]) for row in found)

    @property
    def keys(self) -> list[str]:
        return sorted(row["k"] for row in self.one.rows)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_each_snapshot_in_force_is_in_the_changelog_once(lake: Lake) -> None:
    assert lake.complete() is None
    assert DeltaTable.open(lake.one.changelog) is None
    lake.snapshot(6, "a", "b", big=None, __rescued=[("num", "NaN")])
    assert lake.complete() is not None
    assert lake.complete() is None
    assert lake.events == [("r", 5, "a"), ("r", 5, "b")]
    # The position of a changelog knows nothing of reads, and neither do merges.
    assert lake.one.changelog_position is None
    lake.add(10, (10, 0, "c"))
    assert lake.one.changelog_position == (10, COMPLETE)
    assert read_changes(lake.one.open_changelog(), 0, 10).num_rows == 1
    lake.merge(10, token=6)
    assert lake.complete() is None
    assert lake.keys == ["a", "b", "c"]
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
    assert lake.events == [("c", 10, "c"), ("r", 5, "a"), ("r", 5, "b"), ("r", 19, "a")]


def test_a_read_looks_like_a_change(tmp_path: Path) -> None:
    lake = Lake(tmp_path, row_type(**{"h": pa.int32(), "k": pa.string(), "a name, with spaces": pa.int64()}))
    lake.snapshot(6, "a", __rescued=[("num", "NaN")], **{"a name, with spaces": 7})
    lake.complete()
    (found,) = lake_rows(lake.one.changelog)
    found["after"]["__rescued"] = dict(found["after"]["__rescued"])
    assert found == {
        "__op": "r",
        "__commit_lsn": 5,
        "__tx_index": -1,
        "__lsn": 5,
        "__xid": None,
        "__commit_ts": AT,
        "__unchanged": [],
        "before": None,
        "after": {"h": 0, "k": "a", "a name, with spaces": 7, "__rescued": {"num": "NaN"}},
        "__schema_version": 0,
    }


def test_reads_of_another_schema_version_stand_beside_what_cannot_hold_them(tmp_path: Path) -> None:
    numbers = OneTable(tmp_path, TABLE, row_type(k=pa.string(), v=pa.int32()))
    numbers.snapshot(6, [{"k": "a", "v": 1, "__rescued": None}], lsn=5, schema_version=1)
    assert complete_snapshot_events(numbers.lake, numbers.changelog, SLOT, T, 1) is not None
    texts = OneTable(tmp_path, TABLE, row_type(k=pa.string(), v=pa.string()))
    texts.snapshot(9, [{"k": "a", "v": "one", "__rescued": None}], lsn=8, schema_version=2)
    assert complete_snapshot_events(texts.lake, texts.changelog, SLOT, T, 1) is not None
    found = sorted(lake_rows(texts.changelog), key=lambda row: row["__lsn"])
    assert [(row["__schema_version"], row["after"]["v"], row["after"]["v@2"]) for row in found] == [
        (1, 1, None),
        (2, None, "one"),
    ]


def test_old_merged_changes_leave_once_a_day(lake: Lake) -> None:
    assert lake.expire(1) is None
    lake.snapshot(6, "a")
    lake.complete()
    lake.add(10, (8, 0, "c"), (10, 0, "b"))
    # Nothing is merged yet: only what came from the lake may go. With nothing to go there is no commit.
    assert lake.expire(20) is None
    assert lake.expire(1) is not None
    assert lake.events == [("c", 8, "c"), ("c", 10, "b")]
    assert lake.complete() is None
    # What stays: the recent, what is not merged, and of a transaction that the last batch ended in, what tells so.
    lake.add(12, (12, 0, "d"))
    lake.add(14, (14, 0, "e"), (16, 0, "f"), at=AT + timedelta(days=9), cut=(16, 0))
    lake.merge(12, token=6)
    assert lake.expire(3) is None, "the table was cleared on this day"
    assert lake.expire(3, NOW + DAY_US) is not None
    assert lake.events == [("c", 14, "e"), ("c", 16, "f")]
    lake.merge(16, token=6)
    assert lake.expire(3, NOW + 2 * DAY_US) is None
    assert lake.expire(3, NOW + 14 * DAY_US) is not None
    assert lake.events == [("c", 16, "f")]
    assert lake.one.changelog_position == (16, 0)
    assert lake.keys == list("abcdef")
