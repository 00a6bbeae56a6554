"""Rows whose parent row is not in the lake, against a plain model, over tables of several files."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.lake.delete_columns import COLUMNS
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.bounds import Bounds
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.stores.missing_parents import Missing, missing_parents
from tests.support.spark import AT, lake_schema, row_type


class Files:
    """A lake table in memory: each list of rows is a file with its statistics."""

    def __init__(self, row, files, mode=DeleteMode.HARD):
        self.schema = pa.schema([*lake_schema(row), *COLUMNS[mode]])
        self.asked = []
        self._tables = {}
        for number, rows in enumerate(files):
            table = pa.Table.from_pylist([{"__commit_ts": AT, "__tx_index": 0, **each} for each in rows], self.schema)
            bounds = Bounds()
            bounds.cover(table)
            file = DataFile(str(number), 1, len(rows), bounds.minimum, bounds.maximum, bounds.nulls)
            self._tables[file.path] = (file, table)

    @property
    def files(self):
        return [file for file, _ in self._tables.values()]

    def read(self, file, columns=None):
        self.asked.append(file.path)
        return self._tables[file.path][1].select(columns)


PARENT, CHILD = row_type(a=pa.int32(), b=pa.string()), row_type(id=pa.int32(), a=pa.int64(), b=pa.string())
texts = st.sampled_from(["x", "y", ""])
parents = st.lists(st.lists(st.fixed_dictionaries({"a": st.integers(0, 3), "b": texts}), max_size=4), max_size=3)
children = st.lists(
    st.lists(
        st.fixed_dictionaries(
            {
                "a": st.none() | st.integers(0, 4),
                "b": st.none() | texts,
                "__commit_lsn": st.integers(1, 4),
                "__tx_index": st.integers(-1, 1),
            }
        ),
        max_size=6,
    ),
    max_size=3,
)


@given(parents, children, st.integers(0, 4))
def test_rows_without_their_parent_are_counted(given_parents, given_children, since):
    there = {(row["a"], row["b"]) for file in given_parents for row in file}
    named = [
        (row["a"], row["b"])
        for file in given_children
        for row in file
        if row["__commit_lsn"] > since and row["__tx_index"] >= 0 and None not in (row["a"], row["b"])
    ]
    child, parent = Files(CHILD, given_children), Files(PARENT, given_parents)
    found = missing_parents(child, ("a", "b"), since, parent, ("a", "b"))
    assert found == Missing(len(named), sum(1 for each in named if each not in there))


def row(lsn=5, **columns):
    return {"__commit_lsn": lsn, **columns}


def missing(child, columns, parent, parent_columns, since=1):
    return missing_parents(child, columns, since, parent, parent_columns)


def test_only_files_that_may_hold_one_are_read():
    parent = Files(PARENT, [[row(a=n, b="x") for n in range(low, low + 10)] for low in (0, 10, 20, 30)])
    child = Files(CHILD, [[row(1, id=1, a=99, b="x")], [row(2, id=2, a=12, b="x")]])
    assert missing(child, ("a",), parent, ("a",)) == Missing(1, 0)
    assert (child.asked, parent.asked) == (["1"], ["1"])
    assert missing(child, ("a",), parent, ("a",), since=2) == Missing(0, 0)


def test_a_table_may_refer_to_itself():
    tree = Files(CHILD, [[row(id=1, a=None), row(id=2, a=1), row(id=3, a=9)]])
    assert missing(tree, ("a",), tree, ("id",)) == Missing(2, 1)


def test_one_column_may_stand_for_two():
    child = Files(CHILD, [[row(id=1, a=1), row(id=2, a=2)]])
    parent = Files(row_type(p=pa.int32(), q=pa.int32()), [[row(p=1, q=1), row(p=1, q=2)]])
    assert missing(child, ("a", "a"), parent, ("p", "q")) == Missing(2, 1)


@pytest.mark.parametrize(
    ("mode", "live", "gone"),
    [
        (DeleteMode.SOFT, {"__deleted": False}, {"__deleted": True}),
        (DeleteMode.HISTORY, {"__current": True}, {"__current": False, "__valid_to_lsn": 4}),
    ],
)
def test_only_live_rows_count_on_either_side(mode, live, gone):
    parent = Files(PARENT, [[row(a=1, b="x", **live), row(a=2, b="x", **gone)], [row(a=3, b="x", **gone)]], mode)
    child = Files(CHILD, [[row(id=n, a=n, **live) for n in (1, 2, 3)], [row(id=4, a=9, **gone)]], mode)
    assert missing(child, ("a",), parent, ("a",)) == Missing(3, 2)


def test_columns_that_cannot_be_compared_are_told():
    child, parent = Files(CHILD, [[row(id=1, a=1)]]), Files(PARENT, [])
    assert missing(child, ("a",), parent, ("b",)) is None
    assert missing(child, ("no such",), parent, ("a",)) is None
    assert missing(child, ("a",), parent, ("no such",)) is None
    assert missing(child, ("A",), parent, ("A",)) == Missing(1, 1)


def test_wider_types_hold_narrower_ones():
    prices = Files(row_type(p=pa.decimal128(12, 2)), [[row(p=7)], [row(p=8)]])
    assert missing(Files(CHILD, [[row(id=7), row(id=9)]]), ("id",), prices, ("p",)) == Missing(2, 1)
