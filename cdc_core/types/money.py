"""money: a whole number of the smallest unit of a currency, of which the database's lc_monetary has so many decimals.

Every session has lc_monetary C (``postgres/connection``), in which the server prints that number as hundredths, as
``-$1,234.56``, whatever the locale is. The decimals are those of the type (``PgType.scale``), read from the server.
"""

from __future__ import annotations

import re
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools
from cdc_core.schema import Column
from cdc_core.types import semantic
from cdc_core.types._flat import flatten, gather
from cdc_core.types._kernels import from_flat, unscaled_bytes, validity
from cdc_core.types._slow_path import scatter
from cdc_core.types.codec import ColumnCodec, Convert, Converted, EventConverter, NaturalConverter
from cdc_core.types.numeric import java_bytes
from cdc_core.types.options import DecimalHandlingMode, TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, builtin

_DIGITS = 19
_SCALE = 2
# The server stores smallest units as int64.
_LIMIT = 1 << 63
_HUNDREDTHS = re.compile(r"(-?)\$?([0-9][0-9,]*)\.([0-9]{2})")


def to_decimal(scale: int) -> Convert:
    """Return the converter to decimal128(19, scale); text that is not an int64 in lc_monetary C is bad."""
    arrow_type = pa.decimal128(_DIGITS, scale)

    def one(text: str) -> Decimal:
        parts = _HUNDREDTHS.fullmatch(text)
        units = int(parts[1] + parts[2].replace(",", "") + parts[3]) if parts is not None else _LIMIT
        if not -_LIMIT <= units < _LIMIT:
            raise ValueError("not an amount under lc_monetary C")
        return Decimal(units).scaleb(-scale)

    def convert(text: pa.Array) -> Converted:
        units, rare = _units(text)
        values = units.cast(pa.decimal128(38, 0))
        # The integer's digits are the decimal's.
        exact = pa.Array.from_buffers(arrow_type, len(values), values.buffers(), values.null_count, values.offset)
        return scatter("money", text, exact, rare, one)

    return convert


def _units(text: pa.Array) -> tuple[pa.Array, Bools]:
    """Return each row's number of smallest units, and which rows have more than 18 digits or are no such text."""
    valid = validity(text)
    data, starts, ends, _ = flatten(text)
    data, starts, ends = gather(data, starts, ends)
    padded = np.append(data, np.zeros(2, dtype=np.uint8))
    digit = (data >= ord("0")) & (data <= ord("9"))
    counts, commas = _count(digit, starts, ends), _count(data == ord(","), starts, ends)
    negative = padded[starts] == ord("-")
    symbol = padded[starts + negative] == ord("$")
    lengths = ends - starts
    # The text consists only of the characters that are counted here.
    plain = (counts + commas + negative + symbol + 1 == lengths) & (counts > 2) & (counts <= _DIGITS - 1)
    plain &= padded[np.maximum(ends - 3, 0)] == ord(".")
    for place in (ends - 1, ends - 2, starts + negative + symbol):
        plain &= (padded[np.maximum(place, 0)] != ord(",")) & (place >= starts)
    numbers = from_flat(data[digit & np.repeat(plain, lengths)], np.where(plain, counts, 0), None, pa.string())
    numbers = pc.if_else(pa.array(plain), numbers, "0").cast(pa.int64()).to_numpy(zero_copy_only=False)
    return pa.array(np.where(negative, -numbers, numbers), mask=None if valid is None else ~valid), ~plain


def _count(marks: Bools, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    before = np.zeros(len(marks) + 1, dtype=np.int64)
    np.cumsum(marks, out=before[1:])
    return np.asarray(before[ends] - before[starts])


def _precise(amounts: Convert, scale: int, places: int) -> Convert:
    def convert(text: pa.Array) -> Converted:
        converted = amounts(text)
        values = converted.values
        if places < scale:
            values = pc.round(values, places, "half_towards_infinity")
        if places <= _DIGITS:
            return Converted(unscaled_bytes(values.cast(pa.decimal128(38, places))), converted.bad)
        # row-wise: a money.fraction.digits of more than 19 is not used by any locale
        octets = [
            None if value is None else java_bytes(int(value.scaleb(scale)) * 10 ** (places - scale))
            for value in values.to_pylist()
        ]
        return Converted(pa.array(octets, pa.binary()), converted.bad)

    return convert


def _text(amounts: Convert) -> Convert:
    def convert(text: pa.Array) -> Converted:
        converted = amounts(text)
        return Converted(converted.values.cast(pa.string()), converted.bad)

    return convert


def _double(amounts: Convert) -> Convert:
    def convert(text: pa.Array) -> Converted:
        converted = amounts(text)
        return Converted(converted.values.cast(pa.string()).cast(pa.float64()), converted.bad)

    return convert


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """decimal(19, decimals) in the lake; Decimal of ``money.fraction.digits``, double or text in events."""
    scale = _SCALE if column.type.scale is None else column.type.scale
    amounts = to_decimal(scale)
    digits = options.money_fraction_digits
    mode = options.decimal_handling_mode
    if mode is DecimalHandlingMode.DOUBLE:
        event = EventConverter(semantic.plain("double"), pa.float64(), _double(amounts), fallback=0.0)
    elif mode is DecimalHandlingMode.STRING:
        event = EventConverter(
            semantic.plain("string"), pa.string(), _text(amounts), fallback=f"{Decimal(0):.{digits}f}"
        )
    else:
        schema = semantic.logical("bytes", semantic.CONNECT_DECIMAL, (("scale", str(digits)),))
        event = EventConverter(schema, pa.binary(), _precise(amounts, scale, digits), fallback=b"\0")
    return ColumnCodec(NaturalConverter(pa.decimal128(_DIGITS, scale), amounts), event)


RULES: tuple[TypeRule, ...] = (builtin("money", build, "money"),)
