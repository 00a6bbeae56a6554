"""Values get equal numbers exactly when PostgreSQL holds them equal, in every type a key can have."""

from __future__ import annotations

import math
import struct
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core.lake.reduce.multiset import taken
from cdc_core.lake.rows.codes import UNKNOWN, Tuples, numbered
from tests.support.sampling import examples

OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
_FLOATS = st.sampled_from([0.0, -0.0, 1.5, math.nan, OTHER_NAN, math.inf, -math.inf])
_TEXTS = st.sampled_from(["", "a", "b", "é", "a\x00", "ab"])
_LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int16(), st.integers(-2, 2)),
    (pa.int64(), st.sampled_from([0, -1, 2**63 - 1, -(2**63)])),
    (pa.string(), _TEXTS),
    (pa.binary(), st.sampled_from([b"", b"\x00", b"\x00\x00"])),
    (pa.bool_(), st.booleans()),
    (pa.float32(), _FLOATS),
    (pa.float64(), _FLOATS),
    (pa.decimal128(38, 4), st.sampled_from([Decimal("1.5"), Decimal("1.5000"), Decimal(0), Decimal("-0.0001")])),
    (pa.date32(), st.sampled_from([date(1, 1, 1), date(2026, 1, 1)])),
    (pa.timestamp("us"), st.sampled_from([datetime(1, 1, 1), datetime(9999, 1, 1), datetime(1970, 1, 1)])),
    (pa.timestamp("us", "UTC"), st.sampled_from([datetime(1400, 1, 1), datetime(1970, 1, 1)])),
    (pa.duration("us"), st.sampled_from([timedelta(0), timedelta(1)])),
]


def _nested(kind: pa.DataType, values: st.SearchStrategy[Any]) -> list[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    some = st.none() | values
    short = st.lists(some, max_size=3)
    return [
        (pa.list_(kind), short),
        (pa.list_(pa.list_(kind)), st.lists(st.none() | short, max_size=2)),
        (pa.struct([("x", kind), ("y", pa.string())]), st.fixed_dictionaries({"x": some, "y": st.none() | _TEXTS})),
        (pa.map_(pa.string(), kind), st.dictionaries(_TEXTS, some, max_size=3).map(lambda found: list(found.items()))),
    ]


TYPES = [*_LEAVES, *[each for leaf in _LEAVES for each in _nested(*leaf)]]


def meaning(value: Any, kind: pa.DataType, exact: bool) -> Any:
    """A value that is equal to another's exactly when PostgreSQL holds both equal."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return "map", frozenset((key, meaning(item, kind.item_type, exact)) for key, item in value)
    if pa.types.is_struct(kind):
        return "row", *[meaning(value[each.name], each.type, exact) for each in kind]
    if pa.types.is_list(kind):
        return "list", *[meaning(each, kind.value_type, exact) for each in value]
    if pa.types.is_floating(kind):
        return "NaN" if math.isnan(value) else (value, math.copysign(1, value)) if exact else value + 0.0
    return value


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.DataType, list[Any], list[Any]]:
    kind, values = draw(st.sampled_from(TYPES))
    rows = st.lists(st.none() | values, max_size=8)
    return kind, draw(rows), draw(rows)


def as_array(values: list[Any], kind: pa.DataType, sliced: bool) -> pa.Array:
    """The values, or the same as a slice of a longer array."""
    return pa.array([None, *values[::-1], *values], kind)[len(values) + 1 :] if sliced else pa.array(values, kind)


@settings(max_examples=examples(200), deadline=None)
@given(made=columns(), exact=st.booleans(), sliced=st.booleans())
def test_numbers_are_equal_when_values_are(
    made: tuple[pa.DataType, list[Any], list[Any]], exact: bool, sliced: bool
) -> None:
    kind, known, asked = made
    coder, codes = numbered(as_array(known, kind, sliced), exact)
    first: dict[Any, int] = {}
    expected = [first.setdefault(meaning(value, kind, exact), len(first)) for value in known]
    assert codes.tolist() == expected
    found = coder.codes(as_array(asked, kind, not sliced))
    assert found.dtype == np.int64
    assert found.tolist() == [first.get(meaning(value, kind, exact), UNKNOWN) for value in asked]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize(("exact", "expected"), [(False, [0, 0, 1, 1, 2]), (True, [0, 1, 2, 2, 3])])
def test_both_zeros_are_one_number_unless_exact_and_every_nan_is_one(
    kind: pa.DataType, exact: bool, expected: list[int]
) -> None:
    coder, codes = numbered(pa.array([0.0, -0.0, math.nan, OTHER_NAN, 1.5], kind), exact)
    assert codes.tolist() == expected
    assert coder.codes(pa.array([-0.0, OTHER_NAN], kind)).tolist() == [expected[1], expected[3]]


@settings(max_examples=examples(80), deadline=None)
@given(data=st.data())
def test_tuples_of_columns(data: st.DataObject) -> None:
    drawn = data.draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4))
    rows = [data.draw(st.lists(st.tuples(*[st.none() | values for _, values in drawn]), max_size=8)) for _ in range(2)]
    kinds = [kind for kind, _ in drawn]
    made = [[pa.array([row[n] for row in part], kind) for n, kind in enumerate(kinds)] for part in rows]
    meanings = [
        [tuple(meaning(value, kind, False) for value, kind in zip(row, kinds, strict=True)) for row in part]
        for part in rows
    ]
    coder, codes = Tuples.number(made[0])
    first: dict[Any, int] = {}
    assert codes.tolist() == [first.setdefault(each, len(first)) for each in meanings[0]]
    assert coder.codes(made[1]).tolist() == [first.get(each, UNKNOWN) for each in meanings[1]]


@pytest.mark.parametrize("kind", [pa.string_view(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_other_layouts_of_text(kind: pa.DataType) -> None:
    coder, codes = numbered(pa.array(["b", "a", None, "b"]).cast(kind))
    assert codes.tolist() == [0, 1, 2, 0]
    assert coder.codes(pa.array(["a", "x", None]).cast(kind)).tolist() == [1, UNKNOWN, 2]


def test_rows_taken_by_count() -> None:
    times = np.array([2, 0, 1])
    assert taken(np.array([0, -1, 0, 0, 1, 2]), times).tolist() == [True, False, True, False, False, True]
    assert times.tolist() == [0, 0, 0]
    assert not taken(np.array([0, 2, -1]), times).any()


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_one_large_value_is_found_without_a_table_of_it(kind):
    large = "x" * (3 << 20)
    coder, codes = Tuples.number([pa.array([7]), pa.array([large], pa.string()).cast(kind)])
    assert codes.tolist() == [0]
    others = pa.array([large, large + "y", "x", None, large], pa.string()).cast(kind)
    assert coder.codes([pa.array([7, 7, 7, 7, 8]), others]).tolist() == [0, -1, -1, -1, -1]
