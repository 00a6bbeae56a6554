"""Arrow tables in a Delta table's schema version, and the bounds of their values."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from cdc_core.lake.delta.bounds import Bounds
from cdc_core.lake.delta.conform import conform, has_local_timestamps, plain_schema, plain_type


def test_columns_take_the_tables_order_types_and_names() -> None:
    rows = pa.table({"b": pa.array([1, None], pa.int16()), "A": ["x", "y"], "left out": [0, 0]})
    wanted = pa.schema([("a", pa.string()), ("new", pa.date32()), ("b", pa.decimal128(7, 2))])
    found = conform(rows, wanted)
    assert found.schema.equals(wanted)
    assert found.to_pylist() == [{"a": "x", "new": None, "b": Decimal("1.00")}, {"a": "y", "new": None, "b": None}]
    assert conform(found, wanted) is found


def test_structs_are_conformed_at_any_depth_and_nulls_stay_null() -> None:
    inner = pa.struct([("x", pa.int32())])
    rows = pa.table(
        {
            "s": pa.array(
                [{"x": 1, "i": {"x": 2}}, None, {"x": None, "i": None}], pa.struct([("x", pa.int32()), ("i", inner)])
            )
        }
    )
    rows = pa.concat_tables([rows, rows.slice(1)])
    wide = pa.struct([("i", pa.struct([("y", pa.string()), ("x", pa.int64())])), ("x", pa.int64()), ("z", pa.bool_())])
    found = conform(rows, pa.schema([("s", wide)]))
    found.validate(full=True)
    assert found.column("s").to_pylist()[:3] == [
        {"i": {"y": None, "x": 2}, "x": 1, "z": None},
        None,
        {"i": None, "x": None, "z": None},
    ]
    assert found.num_rows == 5
    assert conform(rows.slice(0, 0), pa.schema([("s", wide)])).num_rows == 0


def test_a_value_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(pa.ArrowInvalid):
        conform(pa.table({"a": [2**40]}), pa.schema([("a", pa.int32())]))


@pytest.mark.parametrize(
    ("kind", "plain"),
    [
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.binary_view(), pa.binary()),
        (pa.large_list(pa.large_binary()), pa.list_(pa.binary())),
        (pa.list_(pa.field("item", pa.int32(), nullable=False)), pa.list_(pa.int32())),
        (pa.struct([pa.field("a", pa.large_string(), nullable=False)]), pa.struct([("a", pa.string())])),
        (pa.map_(pa.large_string(), pa.large_string()), pa.map_(pa.string(), pa.string())),
        (pa.timestamp("us"), pa.timestamp("us")),
    ],
)
def test_layouts_become_plain(kind: pa.DataType, plain: pa.DataType) -> None:
    assert plain_type(kind).equals(plain)
    assert plain_schema(pa.schema([pa.field("a", kind, nullable=False, metadata={"k": "v"})])).equals(
        pa.schema([("a", plain)]), check_metadata=True
    )


def test_local_timestamps_are_found_at_any_depth() -> None:
    assert has_local_timestamps(pa.schema([("a", pa.list_(pa.struct([("t", pa.timestamp("us"))])))]))
    assert not has_local_timestamps(pa.schema([("t", pa.timestamp("us", tz="UTC")), ("d", pa.date32())]))


def bounds_of(*tables: pa.Table) -> tuple[dict[str, object], dict[str, object]]:
    bounds = Bounds()
    for table in tables:
        bounds.cover(table)
    return bounds.minimum, bounds.maximum


def test_bounds_cover_all_parts_and_pass_nulls_by() -> None:
    first = pa.table({"n": pa.array([3, None], pa.int32()), "d": [date(1, 1, 1), None], "s": ["b", "é"]})
    second = pa.table({"n": pa.array([None, -7], pa.int32()), "d": [None, None], "s": ["a", None]})
    second = second.cast(first.schema)
    low, high = bounds_of(first, second, first.slice(0, 0))
    assert low == {"n": -7, "d": date(1, 1, 1), "s": "a"} and high == {"n": 3, "d": date(1, 1, 1), "s": "é"}


def test_what_readers_order_differently_has_no_bounds() -> None:
    low, high = bounds_of(
        pa.table({"f": [1.0], "t": pa.array([0], pa.timestamp("us")), "b": [True], "n": pa.array([None], pa.int64())})
    )
    assert low == high == {}


def test_a_long_text_anywhere_takes_the_columns_bounds_away_for_good() -> None:
    short, long = pa.table({"s": ["a"]}), pa.table({"s": ["a", "b" * 37]})
    assert bounds_of(short, long, short) == ({}, {})
    assert bounds_of(short)[0] == {"s": "a"}


def test_of_wide_tables_the_first_columns_and_our_own_have_bounds() -> None:
    names = [*[f"c{number:02}" for number in range(40)], "__commit_lsn"]
    low, _ = bounds_of(pa.table({name: [1] for name in names}))
    assert list(low) == [*names[:32], "__commit_lsn"]
