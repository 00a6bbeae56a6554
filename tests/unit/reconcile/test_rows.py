"""Digests of two sides: which values they do not have equally often. Keys as texts. The pace of reading."""

import time
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from cdc_core.lake.compare.key_texts import key_list, key_texts
from cdc_core.lake.compare.rows import is_among, surplus
from cdc_core.lake.rows.row_keys import KeyColumns
from cdc_core.reconcile.pace import ReadPace


def test_surplus_is_what_is_not_there_equally_often():
    chance = np.random.default_rng(1)
    for _ in range(200):
        one, other = (chance.integers(0, 12, chance.integers(0, 20)).astype(np.uint64) for _ in range(2))
        left, right = Counter(one.tolist()), Counter(other.tolist())
        wanted = sorted(value for value in left | right if left[value] != right[value])
        assert surplus(one, other).tolist() == wanted
        assert is_among(one, surplus(one, other)).tolist() == [value in wanted for value in one.tolist()]


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (7, pa.int32(), "7"),
        (True, pa.bool_(), "t"),
        ("é, x", pa.string(), "é, x"),
        (Decimal("1.50"), pa.decimal128(10, 2), "1.50"),
        (Decimal("1.50"), pa.decimal128(38, 18), "1.5"),
        (Decimal(100), pa.decimal128(38, 18), "100"),
        (date(2024, 2, 29), pa.date32(), "2024-02-29"),
        (datetime(2024, 1, 1, 0, 0, 0, 500000, tzinfo=UTC), pa.timestamp("us", tz="UTC"), "2024-01-01 00:00:00.5+00"),
        (datetime(2024, 1, 1), pa.timestamp("us"), "2024-01-01 00:00:00"),
        (b"\x01\xff", pa.binary(), "\\x01ff"),
        *(
            (value, pa.float64(), text)
            for value, text in ((1.0, "1"), (-0.0, "-0"), (1e15, "1e+15"), (0.0001, "0.0001"))
        ),
        *((value, pa.float64(), text) for value, text in ((1.5e-5, "1.5e-05"), (123456789.125, "123456789.125"))),
        *(
            (value, pa.float32(), text)
            for value, text in ((float("nan"), "NaN"), (16777216.0, "1.6777216e+07"), (1.1, "1.1"))
        ),
        (float("-inf"), pa.float64(), "-Infinity"),
        ([("a", '1"'), ("b", None)], pa.map_(pa.string(), pa.string()), '"a"=>"1\\"", "b"=>NULL'),
        ([1, None], pa.list_(pa.int64()), "{1,NULL}"),
        (["a b", "", 'q"'], pa.list_(pa.string()), '{"a b","","q\\""}'),
    ],
)
def test_keys_have_postgresqls_texts(value, kind, text):
    keys = pa.table({"k": pa.array([value], kind)})
    assert key_texts(keys, KeyColumns(("k",), (False,))) == [(text,)]


def test_keys_are_listed_in_order_up_to_the_limit():
    keys = pa.table({"k": pa.array([10, 9, 100])})
    found = key_list(keys, KeyColumns(("k",), (False,)), 2)
    assert (found.count, found.keys) == (3, (("9",), ("10",)))


def test_a_pace_bounds_the_rate():
    began = time.monotonic()
    pace = ReadPace(1000)
    for _ in range(3):
        pace.spend(100)
    assert time.monotonic() - began >= 0.25
    ReadPace(0).spend(10**9)
