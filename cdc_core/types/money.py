"""money. The server prints it by lc_monetary, which is not in the stream: symbols are ignored, signs recognised.

A parenthesis or a minus means negative. The last point or comma is the decimal one unless exactly three digits follow
it, which are then a group of thousands.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.schema.table import Column
from cdc_core.types import semantic
from cdc_core.types._flat import flatten, gather
from cdc_core.types._kernels import Bools, Ints, from_flat, unscaled_bytes, validity
from cdc_core.types._slow_path import scatter
from cdc_core.types.codec import ColumnCodec, Convert, Converted, EventConverter, NaturalConverter
from cdc_core.types.options import DecimalHandlingMode, TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, builtin

_NATURAL = pa.decimal128(19, 2)


def to_decimal(text: pa.Array) -> Converted:
    """Convert to decimal128(19, 2)[N]."""
    cents, places, bad = _parse(text)
    values = cents.cast(pa.decimal128(38, 0))
    rare = (places != 2) & ~bad
    # Two decimals are the usual case: the integer's digits are the decimal's.
    exact = _rescaled(values, _NATURAL)
    return scatter("money", text, exact, rare | bad, _one)


def _rescaled(values: pa.Array, arrow_type: pa.Decimal128Type) -> pa.Array:
    return pa.Array.from_buffers(arrow_type, len(values), values.buffers(), values.null_count, values.offset)


def _parse(text: pa.Array) -> tuple[pa.Array, Ints, Bools]:
    """Return each row's digits as a signed integer, how many of them are decimals, and which rows have no digits."""
    valid = validity(text)
    data, starts, ends, _ = flatten(text)
    data, starts, ends = gather(data, starts, ends)
    digit = (data >= ord("0")) & (data <= ord("9"))
    before = np.zeros(len(data) + 1, dtype=np.int64)
    np.cumsum(digit, out=before[1:])
    counts = before[ends] - before[starts]
    negative = _any_in(starts, ends, (data == ord("-")) | (data == ord("(")))
    bad = (counts == 0) | (counts > 18)
    if valid is not None:
        bad &= valid
    lengths = np.where(bad, 0, counts)
    kept = digit & np.repeat(~bad, ends - starts)
    numbers = from_flat(data[kept], lengths, None, pa.string())
    empty = lengths == 0
    numbers = pc.if_else(pa.array(empty), "0", numbers).cast(pa.int64()).to_numpy(zero_copy_only=False)
    signed = pa.array(np.where(negative, -numbers, numbers), mask=None if valid is None else ~valid)
    return signed, _places(data, starts, ends, before), bad


def _any_in(starts: Ints, ends: Ints, marks: Bools) -> Bools:
    before = np.zeros(len(marks) + 1, dtype=np.int64)
    np.cumsum(marks, out=before[1:])
    found: Bools = before[ends] > before[starts]
    return found


def _places(data: np.ndarray, starts: Ints, ends: Ints, before: Ints) -> Ints:
    """Return the number of digits after the last separator; 0 if there is none, or if they are a group of three."""
    separators = np.flatnonzero((data == ord(".")) | (data == ord(",")))
    if not len(separators):
        return np.zeros(len(starts), dtype=np.int64)
    last = np.searchsorted(separators, ends, side="left") - 1
    at = separators[np.maximum(last, 0)]
    inside = (last >= 0) & (at >= starts)
    after = before[ends] - before[np.where(inside, at, ends)]
    places: Ints = np.where(after == 3, 0, after)
    return places


def _one(text: str) -> Decimal:
    digits = "".join(character for character in text if character in "0123456789")
    separator = max(text.rfind("."), text.rfind(","))
    after = sum(character in "0123456789" for character in text[separator:]) if separator >= 0 else 0
    if not digits:
        raise ValueError("no digits")
    value = int(digits) * 10 ** (2 if after in (0, 3) else 2 - after) if after <= 3 else -1
    if value < 0 or value >= 10**19:
        raise ValueError("not an amount")
    return Decimal(-value if "-" in text or "(" in text else value).scaleb(-2)


def _precise(places: int) -> Convert:
    wide = pa.decimal128(38, min(places, 19))
    step = Decimal(1).scaleb(-places)

    def convert(text: pa.Array) -> Converted:
        amounts = to_decimal(text)
        if places == 2:
            return Converted(unscaled_bytes(amounts.values), amounts.bad)
        if 2 < places <= 19:
            return Converted(unscaled_bytes(amounts.values.cast(wide)), amounts.bad)
        # row-wise: money.fraction.digits of 0, 1 or more than 19 is not used by any locale
        rounded = [
            None if value is None else value.quantize(step, ROUND_HALF_UP, context=None)
            for value in amounts.values.to_pylist()
        ]
        unscaled = [None if value is None else int(value.scaleb(places)) for value in rounded]
        return Converted(unscaled_bytes(pa.array(unscaled, pa.decimal128(38, 0))), amounts.bad)

    return convert


def _text(text: pa.Array) -> Converted:
    amounts = to_decimal(text)
    return Converted(amounts.values.cast(pa.string()), amounts.bad)


def _double(text: pa.Array) -> Converted:
    amounts = to_decimal(text)
    return Converted(amounts.values.cast(pa.string()).cast(pa.float64()), amounts.bad)


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """decimal(19, 2) in the lake; Decimal of ``money.fraction.digits``, double or text in events."""
    digits = options.money_fraction_digits
    mode = options.decimal_handling_mode
    if mode is DecimalHandlingMode.DOUBLE:
        event = EventConverter(semantic.plain("double"), pa.float64(), _double, fallback=0.0)
    elif mode is DecimalHandlingMode.STRING:
        event = EventConverter(semantic.plain("string"), pa.string(), _text, fallback=f"{Decimal(0):.{digits}f}")
    else:
        schema = semantic.logical("bytes", semantic.CONNECT_DECIMAL, (("scale", str(digits)),))
        event = EventConverter(schema, pa.binary(), _precise(digits), fallback=b"\0")
    return ColumnCodec(NaturalConverter(_NATURAL, to_decimal), event)


RULES: tuple[TypeRule, ...] = (builtin("money", build, "money"),)
