"""What is used of ranges that an earlier attempt has read, and what is read beside it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.stores import range_log
from cdc_core.lake.stores.range_log import FinishedRange, RangeLog
from cdc_core.lake.write.read_target import ReadTarget
from cdc_core.lake.write.take_out import TakeOut
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.snapshot.copy.plan import ALONE, batches, plan_gap, rows_per_range
from cdc_core.snapshot.copy.resume import Resumption, resumption, written_before, written_since

T, OTHER = TableId("public", "t"), TableId("public", "other")
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("v", pa.int64()), ("__rescued", pa.string())])
SINCE, NOW = "100:110:103", "500:510:"


@pytest.fixture
def lake(tmp_path):
    return DeltaTable.create(str(tmp_path / "t"), SCHEMA, {})


@pytest.fixture
def target(lake):
    return ReadTarget(TableSchema(T, 1, ()), lake, SCHEMA, None, False)


def written(lake, *rows):
    names = ("id", "part", "v")
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=SCHEMA)
    return lake.write_as(table, SCHEMA, "snapshot")


def finished(first, end, *files, **other):
    return FinishedRange(
        **{
            "token": 1000,
            "lsn": 1000,
            "since": SINCE,
            "marks": "m",
            "first_block": first,
            "end_block": end,
            "files": files,
            **other,
        }
    )


def test_what_is_written_down_is_read_again_until_it_is_cleared(tmp_path):
    log = RangeLog(str(tmp_path / "ranges"), {})
    assert log.read() == {}
    file = DataFile("a.parquet", 10, 3, {"id": 1, "d": date(2020, 1, 2)}, {"id": 3, "d": date(2021, 1, 2)}, {"v": 0})
    log.add(T, [finished(0, 10, file), finished(10, None)])
    log.add(OTHER, [finished(0, 5)])
    again = RangeLog(str(tmp_path / "ranges"), {})
    assert again.read() == {T: [finished(0, 10, file), finished(10, None)], OTHER: [finished(0, 5)]}
    again.clear([T])
    assert again.read() == {OTHER: [finished(0, 5)]}
    again.clear([OTHER])
    assert again.read() == {}


def test_the_last_attempt_is_the_one_of_the_highest_position_whatever_the_clocks_were(tmp_path, monkeypatch):
    log = RangeLog(str(tmp_path / "ranges"), {})
    first, later = finished(0, 10), finished(10, 20, token=2000, lsn=2000)
    now = datetime.now(UTC)
    for one, clock in ((first, now + timedelta(hours=1)), (later, now)):
        monkeypatch.setattr(range_log, "datetime", SimpleNamespace(now=lambda zone, clock=clock: clock))
        log.add(T, [one])
    assert log.read() == {T: [first, later]}


def test_ranges_are_used_where_nothing_has_come_between(lake, target):
    file = written(lake, (1, "a", 1))
    recorded = [finished(10, 20, file), finished(0, 5)]
    found = resumption(recorded, "m", NOW, 1000, target)
    assert found is not None and [each.files for each in found.ranges] == [(), (file,)]
    assert found.gaps() == [(5, 10), (20, None)]
    for marks, visible, confirmed in (
        ("other", NOW, 1000),
        ("m", f"500:{100 + 2**30}:", 1000),
        ("m", NOW, 1001),
        ("m", NOW, None),
    ):
        assert resumption(recorded, marks, visible, confirmed, target) is None
    assert resumption([], "m", NOW, 1000, target) is None
    assert resumption([*recorded, finished(15, 30)], "m", NOW, 1000, target) is None


def test_a_range_without_its_files_is_read_again(lake, target):
    file = written(lake, (1, "a", 1))
    gone = replace(file, path="gone.parquet")
    found = resumption([finished(0, 5, gone), finished(5, 10, file)], "m", NOW, 1000, target)
    assert found is not None and found.gaps() == [(0, 5), (10, None)]
    assert resumption([finished(0, 5, replace(file, size=file.size + 1))], "m", NOW, 1000, target) is None


def test_of_several_attempts_the_last_counts(target):
    older = finished(0, 5, since="50:60:", lsn=900)
    found = resumption([older, finished(5, 10)], "m", NOW, 900, target)
    assert found is not None and found.since == SINCE and found.gaps() == [(0, 5), (10, None)]


@given(cuts=st.lists(st.integers(0, 50), unique=True, min_size=1), with_end=st.booleans(), step=st.integers(1, 20))
def test_finished_ranges_and_gaps_cover_every_page_once(cuts, with_end, step):
    bounds = sorted(cuts)
    pairs = [(low, high) for number, (low, high) in enumerate(itertools.pairwise(bounds)) if number % 2 == 0]
    ranges = [finished(low, high) for low, high in pairs] + ([finished(bounds[-1], None)] if with_end else [])
    found = Resumption(SINCE, 1, tuple(ranges))
    pages = 40
    chunks = [chunk for gap in found.gaps() for chunk in plan_gap(T, gap, pages, step)]
    places = sorted([(one.first_block, one.end_block) for one in [*ranges, *chunks]])
    assert places[0][0] == 0 and places[-1][1] is None
    for left, right in itertools.pairwise(places):
        assert left[1] == right[0]


def test_the_conditions_name_the_first_snapshots_xmin_in_32_bits():
    text = f"{2**32 + 7}:{2**32 + 9}:"
    assert written_since(text) == "pg_catalog.age(xmin) <= pg_catalog.age('7'::pg_catalog.xid)"
    assert written_before(text) == "pg_catalog.age(xmin) > pg_catalog.age('7'::pg_catalog.xid)"


def test_keys_are_taken_out_of_the_files_that_have_them(lake):
    untouched = written(lake, (100, "a", 1), (101, "a", 2))
    some = written(lake, (1, "a", 1), (1, "b", 2), (2, "a", 3))
    whole = written(lake, (5, "x", 1))
    fresh = (written(lake, (1, "b", 20), (5, "x", 10)), written(lake, (7, "n", 1)))
    found = TakeOut(lake.path, SCHEMA, ("id", "part"), fresh)([untouched, some, whole])
    assert [old for old, _ in found] == [untouched, some, whole]
    assert found[0][1] == untouched and found[2][1] is None
    left = lake.read_as(found[1][1], SCHEMA).to_pylist()
    assert [(row["id"], row["part"], row["v"]) for row in left] == [(1, "a", 1), (2, "a", 3)]


def test_small_ranges_go_together_and_large_ones_alone():
    found = batches(list("abcdef"), [10, 20, ALONE, 10, ALONE, 10], 2)
    assert [item for batch in found for item in batch] == list("abcdef")
    assert ["c"] in found and ["e"] in found
    many = batches(list(range(100)), [10_000] * 100, 2)
    assert 8 <= len(many) <= 12
    assert rows_per_range([10_000_000], 1_000_000, 2) == 1_000_000
    assert rows_per_range([3_000_000], 1_000_000, 2) == 375_000
    assert rows_per_range([300_000], 1_000_000, 2) == 250_000
    assert rows_per_range([300_000], 1_000, 2) == 1_000
