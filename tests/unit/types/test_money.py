"""money: the text of lc_monetary C, as an amount with the decimals of the database's own lc_monetary."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from cdc_core.schema.pg_type import PgType, TypeKind
from cdc_core.schema.table import Column
from cdc_core.types._slow_path import reset_slow_rows, slow_rows
from cdc_core.types.options import DecimalHandlingMode, TypeOptions
from cdc_core.types.registry import resolve

TEXTS = ["$0.00", "-$0.01", "$1,234.56", "-1234567.89", "$92,233,720,368,547,758.07", "-$92,233,720,368,547,758.08"]
UNITS = [0, -1, 123456, -123456789, 2**63 - 1, -(2**63)]


def money(scale: int | None) -> PgType:
    return PgType(790, "money", scale=scale)


@pytest.mark.parametrize("scale", [0, 1, 2, 3, 4, 10])
def test_the_unit_is_the_locale_s(scale: int) -> None:
    natural = resolve(Column("m", money(scale)), TypeOptions()).natural
    converted = natural.convert(pa.array([*TEXTS, None]))
    assert natural.arrow_type == pa.decimal128(19, scale)
    assert converted.bad is None
    assert converted.values.to_pylist() == [*(Decimal(number).scaleb(-scale) for number in UNITS), None]


def test_a_slice_is_read_as_a_whole_is() -> None:
    convert = resolve(Column("m", money(2)), TypeOptions()).natural.convert
    assert convert(pa.array(TEXTS)[2:4]).values.to_pylist() == [Decimal("1234.56"), Decimal("-1234567.89")]
    assert convert(pa.array([], pa.string())).values.to_pylist() == []
    assert convert(pa.array([None, None], pa.string())).values.to_pylist() == [None, None]


def test_texts_of_other_locales_are_not_read() -> None:
    convert = resolve(Column("m", money(2)), TypeOptions()).natural.convert
    others = [
        *("1\u202f234,56 лв.", "د.ك. 1,234.560", "د.ك. 1,234.560-", "￥1,235", "($5.00)", "$ 5.00", "5,00 $", "$5.000"),
        *("$5", "$5.0", "$.00", ".00", "0", "", "-", "$", "--1.00", "$-1.00", "$$1.00", "1.0,0", ",1.00", "$,1.00"),
        *("1.00-", "1e5.00", "+1.00", "1.00 ", "Rs.1,00,000.00", "1'234.56", "１.00", "1.,0", "1..00", "$1,234,56"),
    ]
    for text in others:
        assert convert(pa.array([text, "$1.00"])).bad.to_pylist() == [True, False], text


@pytest.mark.parametrize(
    "text", ["92233720368547758.08", "-92233720368547758.09", "999999999999999999.99", f"{'9' * 40}.00"]
)
def test_an_amount_outside_of_int64_is_not_read(text: str) -> None:
    convert = resolve(Column("m", money(2)), TypeOptions()).natural.convert
    converted = convert(pa.array([TEXTS[4], text, "$1.00"]))
    assert converted.bad.to_pylist() == [False, True, False]
    assert converted.values.to_pylist() == [Decimal(UNITS[4]).scaleb(-2), None, Decimal("1.00")]


def test_common_amounts_take_no_slow_path() -> None:
    reset_slow_rows()
    resolve(Column("m", money(3)), TypeOptions()).natural.convert(pa.array([*TEXTS[:4], None]))
    assert slow_rows() == {}


@pytest.mark.parametrize(
    ("scale", "digits", "unscaled"),
    [
        (2, 2, [123456, -123456]),
        (3, 2, [12346, -12346]),
        (3, 3, [123456, -123456]),
        (0, 2, [12345600, -12345600]),
        (4, 0, [12, -12]),
        (2, 25, [123456 * 10**23, -123456 * 10**23]),
    ],
)
def test_events_have_the_digits_of_the_option(scale: int, digits: int, unscaled: list[int]) -> None:
    event = resolve(Column("m", money(scale)), TypeOptions(money_fraction_digits=digits)).event
    assert event is not None
    octets = event.convert(pa.array(["$1,234.56", "-$1,234.56", None])).values.to_pylist()
    assert [None if value is None else int.from_bytes(value, "big", signed=True) for value in octets] == [
        *unscaled,
        None,
    ]
    assert dict(event.schema.parameters)["scale"] == str(digits)


def test_halves_are_rounded_away_from_zero() -> None:
    event = resolve(Column("m", money(3)), TypeOptions()).event
    assert event is not None
    octets = event.convert(pa.array(["$0.25", "-$0.25", "$0.24", "$92,233,720,368,547,758.07"])).values.to_pylist()
    assert [int.from_bytes(value, "big", signed=True) for value in octets] == [3, -3, 2, 922_337_203_685_477_581]


def test_events_as_text_and_as_double() -> None:
    for mode, amounts in ((DecimalHandlingMode.STRING, ["123.456"]), (DecimalHandlingMode.DOUBLE, [123.456])):
        event = resolve(Column("m", money(3)), TypeOptions(decimal_handling_mode=mode)).event
        assert event is not None
        assert event.convert(pa.array(["$1,234.56"])).values.to_pylist() == amounts


def test_domains_and_arrays_have_it_too() -> None:
    domain = PgType(50_000, "price", "public", TypeKind.DOMAIN, money(3))
    array = PgType(50_001, "_price", "public", TypeKind.ARRAY, domain)
    assert (domain.money_scale, array.money_scale, PgType(23, "int4").money_scale) == (3, 3, None)
    natural = resolve(Column("ms", array), TypeOptions()).natural
    assert natural.arrow_type == pa.list_(pa.decimal128(19, 3))
    assert natural.convert(pa.array(['{"$1,234.56",NULL}'])).values.to_pylist() == [[Decimal("123.456"), None]]
