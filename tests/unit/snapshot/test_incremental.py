"""The parts of incremental snapshots that need no server: progress, visibility, statements, windows."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc_core.decode.raw_columns import RawColumns
from cdc_core.errors import ProtocolError
from cdc_core.postgres.rows.chunk_sql import KeyColumn, chunk_sql, keys_sql, largest_key_sql
from cdc_core.postgres.rows.chunks import received_visibility
from cdc_core.schema.table import TableId
from cdc_core.snapshot.incremental.lake_progress import MOST_MOVED, Discarded, LakeProgress, Request, Search
from cdc_core.snapshot.incremental.progress import Collection, Progress
from cdc_core.snapshot.incremental.range_task import _next_size
from cdc_core.snapshot.incremental.reader import Streamed
from cdc_core.snapshot.incremental.reports import KeyRange
from cdc_core.snapshot.incremental.window import _keys
from cdc_core.visibility import Visibility

A, B = Collection(TableId("s", "a")), Collection(TableId("s", "b"), "id > 3", "u")
T = TableId("s", 't"1')


def test_progress_survives_its_text():
    progress = Progress().with_tables((A, B)).begun(("id", "k"), ("9", None)).behind(("3", "it's \\"))
    progress = progress.pausing(True).with_blocking((B,))
    assert Progress.from_json(progress.to_json()) == progress
    assert Progress().to_json() == ""
    assert Progress.from_json("") == Progress()
    for text in ("{}", "[1]", '{"queue": 1}'):
        with pytest.raises(ValueError):
            Progress.from_json(text)


def test_a_table_that_waits_is_not_queued_twice_but_one_that_is_read_may_wait_again():
    queued = Progress().with_tables((A, B)).with_tables((B, A))
    assert queued.queue == (A, B)
    assert queued.begun(("id",), ("9",)).with_tables((A,)).queue == (A, B, A)


def test_only_the_current_table_takes_the_keys_with_it():
    under_way = Progress().with_tables((A, B)).begun(("id",), ("9",)).behind(("3",))
    assert under_way.without(lambda table: table == B.table) == Progress((A,), ("3",), ("9",), ("id",))
    assert under_way.without(lambda table: table == A.table) == Progress((B,))
    assert under_way.next_table() == Progress((B,))


def test_a_snapshot_shows_what_ended_before_it():
    seen = Visibility.parse("10:20:10,14")
    xids = np.array([9, 10, 11, 14, 19, 20, 21])
    assert seen.shows(xids).tolist() == [True, False, True, False, True, False, False]
    assert seen.shows_for_good(xids).tolist() == [True, False, False, False, False, False, False]
    with pytest.raises(ValueError):
        Visibility.parse("a:b")
    with pytest.raises(ProtocolError):
        received_visibility("a:b")


def test_ids_of_32_bits_belong_to_the_epoch_nearest_to_the_snapshot():
    high = (5 << 32) + 100
    seen = Visibility(high - 10, high, (high - 5,))
    xids = np.array([95, 94, 100, (1 << 32) - 1])
    assert seen.shows(xids).tolist() == [False, True, False, True]


def test_transactions_of_the_stream_are_remembered_until_every_snapshot_shows_them():
    streamed = Streamed(most=3)
    streamed.add(np.array([8, 12, 14, 15]))
    assert streamed.hidden(Visibility(10, 20, (14,))).tolist() == [14]
    assert streamed.hidden(Visibility(15, 20, ())).tolist() == []
    assert streamed.hidden(Visibility(1, 5, ())).tolist() == [15], "what is shown for good was forgotten"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (
            largest_key_sql(T, [KeyColumn("x"), KeyColumn("y")], "x like '%{}%'"),
            'SELECT "x", "y" FROM "s"."t""1" WHERE (x like \'%{}%\') ORDER BY "x" DESC, "y" DESC LIMIT 1',
        ),
        (
            chunk_sql(T, ["x", "v"], [KeyColumn("x")], 3, after=None, upto=("9",)),
            'SELECT "x", "v" FROM "s"."t""1" ORDER BY "x" LIMIT 3',
        ),
        (
            chunk_sql(T, ["x"], [KeyColumn("x")], 3, after=("1",), upto=("it's",), condition="v > 1"),
            'SELECT "x" FROM "s"."t""1" WHERE "x" > \'1\' AND "x" <= \'it\'\'s\' AND (v > 1) ORDER BY "x" LIMIT 3',
        ),
        (
            chunk_sql(T, ["x"], [KeyColumn("x"), KeyColumn("y")], 3, after=("1", "2"), upto=("3", "4")),
            'SELECT "x" FROM "s"."t""1" WHERE ROW("x", "y") > ROW(\'1\', \'2\') AND ROW("x", "y") <= '
            "ROW('3', '4') ORDER BY \"x\", \"y\" LIMIT 3",
        ),
    ],
)
def test_statements(made, expected):
    assert made == expected


def test_different_keys_make_different_texts():
    rows = [("a", "bc"), ("ab", "c"), (None, "c"), ("", "c"), ("1:a", ""), ("1", ":a"), ("null", None)]
    columns = RawColumns(("k", "l"), tuple(pa.array(column) for column in zip(*rows, strict=True)), (None, None))
    assert len(set(_keys(columns, ("k", "l")).to_pylist())) == len(rows)
    assert _keys(columns, ("l",)).to_pylist() == [row[1] for row in rows]


def test_progress_into_a_lake_survives_its_text():
    under_way = Progress().with_tables((A, B)).begun(("id", "k"), ())
    search = Search(1 << 40, 1 << 41, (("1", "é"), ("2", "'")), True, 2, ("a range", 7))
    state = LakeProgress(
        under_way,
        Request("r", "p", 9, 1 << 40, (1, 3), 5_000, 9_000, 1.5),
        7,
        {A.table: search},
        (Discarded("other", 4, "it was dropped"),),
        (1 << 41, 3),
        2,
        "digest",
        8,
    )
    assert LakeProgress.from_json(state.to_json()) == state
    assert LakeProgress.from_json("") == LakeProgress() == LakeProgress.from_json(LakeProgress().to_json())
    assert state.for_next_table(under_way.next_table()) == replace(
        state, progress=under_way.next_table(), request=Request()
    )
    for text in ("{}", "[1]", '{"progress": 1}'):
        with pytest.raises(ValueError):
            LakeProgress.from_json(text)


def test_changes_are_searched_without_a_gap_since_the_first_row_was_read():
    first = Search(10, 10)
    assert first.begin(10) == 10
    later = first.searched(10, 50)
    assert (later.begin(10), later.begin(30), later.begin(50)) == (50, 50, 50), "these were searched"
    assert later.begin(4) == 4 and later.searched(4, 60) == Search(4, 60), "a job began before"
    assert later.begin(70) == 50, "whatever is between belongs to the table's search"
    moved = later.with_moved([("1",), ("2",)], ())
    assert moved.with_moved([("2",), ("3",)], [("1",), ("2",)]).moved == (("2",), ("3",))
    assert moved.with_moved(None, ()).again and not moved.with_moved(None, ()).moved
    assert moved.with_moved([(str(n),) for n in range(MOST_MOVED + 1)], ()).again


def test_rows_of_keys_and_chunks_with_an_upper_end_from_the_start():
    assert (
        keys_sql(T, ["a"], [KeyColumn("a"), KeyColumn("b")], [("1", "it's"), ("2", "x")], condition="c > 3", only=True)
        == """SELECT "a" FROM ONLY "s"."t""1" WHERE ("a", "b") IN (('1', 'it''s'), ('2', 'x')) AND (c > 3)"""
    )
    key = (KeyColumn("a"),)
    bounded = chunk_sql(T, ["a"], key, 5, after=None, upto=("9",), only=True, bounded=True)
    assert bounded == """SELECT "a" FROM ONLY "s"."t""1" WHERE "a" <= '9' ORDER BY "a" LIMIT 5"""


def test_a_snapshot_shows_all_that_began_before_its_oldest_running_transaction():
    high = (5 << 32) + 100
    seen = Visibility.parse(f"{high}:{high + 9}:{high}")
    assert [seen.shows_all_before(xid) for xid in (99, 100, 101, (1 << 32) - 1)] == [True, True, False, True]


PARTS = st.text(min_size=1, max_size=8) | st.sampled_from(
    ["a.b", "a|7", "a|0007", 'q"t', "Odd Schema", " a ", '"', "|", "1"]
)


@given(PARTS, PARTS, st.integers(1, 99_999))
@example("public", "a|0007", 7)
@example("a.b", "c", 1)
@example("a", "b.c", 1)
def test_a_name_of_a_range_means_one_range(schema: str, table: str, number: int) -> None:
    one = TableId(schema, table)
    assert KeyRange.parse(KeyRange(one, number, number).name) == (one, number)
    assert KeyRange.parse(one.exact) == (one, None) and TableId.of_name(one.exact) == one


@pytest.mark.parametrize("name", ["a.b|", "a.b|0", "a.b|x", "a.b|1|2", "a.b|-1", "a|1", 'a."b|1', ".b|1", "a.b|٣", ""])
def test_what_names_no_range_is_refused(name: str) -> None:
    with pytest.raises(ValueError):
        KeyRange.parse(name)


def test_a_plain_name_is_divided_at_its_first_dot() -> None:
    assert KeyRange.parse("a.b.c|12") == (TableId("a", "b.c"), 12)
    assert KeyRange.parse('"a.b".c') == (TableId("a.b", "c"), None)


def test_chunks_of_narrow_rows_grow_and_those_of_wide_rows_do_not() -> None:
    def sizes(width: int, size: int = 1024) -> list[int]:
        found = [size]
        while len(found) < 8:
            found.append(_next_size(1024, found[-1], found[-1] * width))
        return found

    assert sizes(100) == [1024, 2048, 4096, 8192, 8192, 8192, 8192, 8192]
    assert max(sizes(1)) == 16 * 1024
    assert set(sizes(5_000)) == {1024}
    assert sizes(5_000, 16 * 1024)[4:] == [1024] * 4, "they shrink again"
