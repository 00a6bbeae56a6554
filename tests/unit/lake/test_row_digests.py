"""Digests of rows for the comparison with the source: equal values have one, different values have others."""

from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from cdc_core.lake.rows.key_hash import row_digests

LONG = "x" * 4000
VALUES = [
    pa.array([0.0, -0.0, 1.5, float("nan"), float("inf"), None]),
    pa.array([0, 1, -1, 2**62, None]),
    pa.array(["", "a", "b", LONG, LONG[:2000] + "y" + LONG[2001:], LONG + "x", None]),
    pa.array([b"", b"\x00", b"\x00\x00", None]),
    pa.array([Decimal("1.50"), Decimal("-1.50"), Decimal("0.01"), None], pa.decimal128(38, 2)),
    pa.array([date(2024, 2, 29), date(1, 1, 1), None]),
    pa.array([datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC), None]),
    pa.array([True, False, None]),
    pa.array([[], [1], [1, 2], [2, 1], [None], None], pa.list_(pa.int64())),
    pa.array([{"a": 1, "b": None}, {"a": None, "b": "1"}, {"a": 1, "b": ""}, None]),
    pa.array([[("a", "1")], [("a", "2")], [("b", "1")], None], pa.map_(pa.string(), pa.string())),
]


@pytest.mark.parametrize("values", VALUES, ids=lambda values: str(values.type))
def test_every_value_has_its_own(values):
    digests = row_digests([values])
    assert len(np.unique(digests)) == len(values)
    for at in range(len(values)):
        alone = pa.concat_arrays([values.slice(at, 1)])
        assert row_digests([alone]).tolist() == digests[at : at + 1].tolist()
        assert row_digests([values.slice(at)]).tolist() == digests[at:].tolist()


def test_columns_have_their_places():
    one, other = pa.array(["a", "b"]), pa.array(["b", "a"])
    assert row_digests([one, other])[0] != row_digests([other, one])[0]
    assert row_digests([one, pa.nulls(2)]).tolist() != row_digests([one, other]).tolist()


def test_a_map_in_another_order_is_equal():
    kind = pa.map_(pa.string(), pa.string())
    found = row_digests([pa.array([[("a", "1"), ("b", "2")], [("b", "2"), ("a", "1")]], kind)])
    assert found[0] == found[1]
