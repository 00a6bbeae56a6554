"""Inserts that repeat a key, against a plain model of a table's keys."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.lake.reduce.repeated_inserts import has_repeated_keys, repeated_inserts
from tests.support.spark import change, change_schema, row_type

ROW = row_type(a=pa.int32(), b=pa.string(), day=pa.date32())
KEY = ("a", "b")


def image(a, b="x", text=None):
    return {"a": a, "b": b, "day": None, "__rescued": None if text is None else [("day", text)]}


def frame(rows):
    return pa.Table.from_pylist(rows, schema=change_schema(ROW))


def found(rows, key=KEY, since=0):
    mask = repeated_inserts(frame(rows), key, since)
    return [] if mask is None else [row["__commit_lsn"] for row, bad in zip(rows, mask, strict=True) if bad]


def modelled(rows, since=0):
    """The commit LSNs of inserts whose key was inserted before and has not gone since."""
    inserted, bad = set(), []
    for row in rows:
        op, old, new = row["__op"], row["before"], row["after"]
        if op == "t":
            inserted.clear()
        if row["__commit_lsn"] <= since:
            continue
        before = old and (old["a"], old["b"])
        after = new and (new["a"], new["b"])
        if op == "d" or (op == "u" and before and before != after):
            inserted.discard(before)
        if op == "c":
            if after in inserted:
                bad.append(row["__commit_lsn"])
            inserted.add(after)
    return bad


keys = st.builds(image, st.integers(0, 2), st.sampled_from(["x", "y", ""]))
events = st.one_of(
    st.tuples(st.just("c"), st.none(), keys),
    st.tuples(st.just("c"), st.none(), keys),
    st.tuples(st.just("r"), st.none(), keys),
    st.tuples(st.just("u"), st.none() | keys, keys),
    st.tuples(st.just("d"), keys, st.none()),
    st.tuples(st.just("t"), st.none(), st.none()),
)


@given(st.lists(events, max_size=25), st.integers(0, 12), st.randoms(use_true_random=False))
def test_what_is_found_is_what_the_model_finds(drawn, since, order):
    rows = [change(op, lsn, 0, old, new) for lsn, (op, old, new) in enumerate(drawn, 1)]
    assert found(rows, since=since) == modelled(rows, since)
    shuffled = order.sample(rows, len(rows))
    assert sorted(found(shuffled, since=since)) == modelled(rows, since)


def test_the_second_and_every_further_insert_is_found():
    rows = [change("c", lsn, 0, after=image(1)) for lsn in (1, 2, 3)]
    assert found(rows) == [2, 3]
    assert found(rows, since=1) == [3]


@pytest.mark.parametrize(
    "between",
    [
        change("d", 2, 0, before=image(1)),
        change("t", 2, 0),
        change("u", 2, 0, before=image(1), after=image(2)),
        change("u", 2, 0, before=image(1), after=image(None, "z"), unchanged=["a"]),
    ],
)
def test_a_key_that_is_free_again_may_be_inserted_again(between):
    assert found([change("c", 1, 0, after=image(1)), between, change("c", 3, 0, after=image(1))]) == []


@pytest.mark.parametrize(
    "between",
    [
        change("d", 2, 0, before=image(2)),
        change("u", 2, 0, after=image(1)),
        change("u", 2, 0, before=image(1), after=image(1)),
        change("r", 2, 0, after=image(1)),
    ],
)
def test_what_leaves_the_key_alone_changes_nothing(between):
    assert found([change("c", 1, 0, after=image(1)), between, change("c", 3, 0, after=image(1))]) == [3]


def test_a_delete_without_its_old_row_leaves_nothing_to_be_said():
    assert found([change("c", 1, 0, after=image(1)), change("d", 2, 0), change("c", 3, 0, after=image(1))]) == []


def test_a_value_kept_as_text_belongs_to_the_key():
    rows = [change("c", n, 0, after=image(1, text=text)) for n, text in enumerate(("infinity", "-infinity"), 1)]
    assert found(rows, key=("day",)) == []
    assert found([*rows, change("c", 3, 0, after=image(1, text="infinity"))], key=("day",)) == [3]


@pytest.mark.parametrize(
    ("keys", "expected"), [((1, 2, 3), []), ((1, 3, 3), [3]), ((1, 3, 1), [3]), ((1, None, 1), [3])]
)
def test_a_key_of_one_whole_number(keys, expected):
    assert found([change("c", lsn, 0, after=image(key)) for lsn, key in enumerate(keys, 1)], key=("a",)) == expected


def test_rows_that_are_no_changes_are_passed_by():
    rows = [change("c", 1, 0, after=image(1)), change("c", 2, 0, after=None), change("c", 3, 0, after=image(2))]
    rows.append({**change("c", 4, 0, after=image(1)), "__op": None})
    assert found(rows) == []
    assert found([]) == []


def test_keys_that_repeat_over_several_files_are_seen():
    def rows(*numbers):
        return pa.table({"a": pa.array(numbers, pa.int32()), "b": pa.array(["x"] * len(numbers), pa.string())})

    assert not has_repeated_keys([rows(1, 2), rows(3), rows()], KEY)
    assert has_repeated_keys([rows(1, 2), rows(3, 1)], KEY)
