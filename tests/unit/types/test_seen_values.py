"""Rare values as a run of Debezium 3.6.3 beside a PostgreSQL 15 was seen to write them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cdc_core.schema.table import Column
from cdc_core.types.options import DecimalHandlingMode, TimePrecisionMode, TypeOptions
from cdc_core.types.registry import resolve
from tests.unit.types.converters import bad, base, event_of, values
from tests.unit.types.samples import numeric

HUNDREDS = numeric(5, -2)


def test_a_negative_scale_is_read_without_its_sign() -> None:
    event = event_of(base("numeric"), HUNDREDS)
    assert dict(event.schema.parameters)["scale"] == "2046"
    assert [int.from_bytes(value, "big", signed=True) for value in values(event.convert, "12300", "0", "-500")] == [
        12300 * 10**2046,
        0,
        -500 * 10**2046,
    ]


def test_a_negative_scale_in_text_and_as_a_double() -> None:
    written = event_of(base("numeric"), HUNDREDS, decimal_handling_mode=DecimalHandlingMode.STRING)
    assert values(written.convert, "12300", "0", "NaN", None) == [f"12300.{'0' * 2046}", f"0.{'0' * 2046}", "NAN", None]
    assert written.fallback == "0." + "0" * 2046
    doubled = event_of(base("numeric"), HUNDREDS, decimal_handling_mode=DecimalHandlingMode.DOUBLE)
    assert values(doubled.convert, "12300") == [12300.0]


def test_numerics_of_thousands_of_digits() -> None:
    event = event_of(base("numeric"))
    (value,) = values(event.convert, "-" + "123456789" * 900 + ".5")
    assert value["scale"] == 1
    number = int.from_bytes(value["value"], "big", signed=True)
    assert -number % 10**10 == 1234567895 % 10**10 and -number // 10**8100 == 1


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("2262-04-11 23:47:16.854775", 9223372036854775000),
        ("2262-04-11 23:47:16.854776", None),
        ("1000-03-01 06:00:00.000001", None),
        ("infinity", 2**63 - 1),
    ],
)
def test_moments_beyond_nanoseconds_have_no_value_alone_or_among_others(text: str, nanos: int | None) -> None:
    event = event_of(base("timestamp"), time_precision_mode=TimePrecisionMode.NANOSECONDS)
    for texts in ([text], ["2020-01-01 00:00:00", text]):
        converted = event.convert(pa.array(texts))
        assert converted.values[-1].as_py() == nanos
        assert bad(converted) == ([] if nanos is not None else [len(texts) - 1])


@pytest.mark.parametrize(
    ("name", "mode", "literal", "default"),
    [
        ("date", TimePrecisionMode.CONNECT, "infinity", 169560311),
        ("date", TimePrecisionMode.CONNECT, "-infinity", -170999002),
        ("date", TimePrecisionMode.ISOSTRING, "infinity", "+999999999-12-31Z"),
        ("date", TimePrecisionMode.ISOSTRING, "-infinity", "-999999999-01-01Z"),
        ("timestamp", TimePrecisionMode.ISOSTRING, "infinity", "+999999999-12-31T23:59:59.999999999Z"),
        ("timestamp", TimePrecisionMode.ISOSTRING, "-infinity", "-999999999-01-01T00:00:00Z"),
        ("time", TimePrecisionMode.ISOSTRING, "24:00:00", "23:59:59.999999999Z"),
    ],
)
def test_defaults_at_the_ends_of_time(name: str, mode: TimePrecisionMode, literal: str, default: object) -> None:
    assert event_of(base(name), time_precision_mode=mode).default_value(f"'{literal}'::{name}") == default


def test_a_default_under_a_negative_scale() -> None:
    event = resolve(Column("c", base("numeric"), HUNDREDS), TypeOptions()).event
    assert event is not None
    assert int.from_bytes(event.default_value("12345"), "big") == 12345 * 10**2046
