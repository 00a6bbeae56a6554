"""timestamp with time zone. The server prints it in its session's time zone, so every offset is supported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from cdc_core.schema import Column
from cdc_core.types import semantic
from cdc_core.types._kernels import string_rows, validity, with_nulls
from cdc_core.types._slow_path import convert_with
from cdc_core.types._temporal import (
    CLOCK_TEXT,
    DAY_TEXT,
    LAKE_MAX_US,
    LAKE_MIN_US,
    iso_moment,
    moment_text,
    moments_us,
    parse_moment,
)
from cdc_core.types.codec import ColumnCodec, Convert, Converted, EventConverter, NaturalConverter
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, builtin, misfits
from cdc_core.types.timestamp import lake_us
from cdc_core.types.typmod import fraction_digits

# Near the ends of the four-digit years an offset could lead to other years: only UTC is common there.
_YEAR = r"(?:[1-8][0-9]{3}|9[0-8][0-9]{2}|0[1-9][0-9]{2})"
_CLOCK = r"-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
_COMMON = rf"^(?:[0-9]{{4}}{_CLOCK}\+00|{_YEAR}{_CLOCK}[+-][0-9]{{2}}(?::[0-9]{{2}})?)$"
_IS_MISFIT = misfits(rf"{DAY_TEXT} {CLOCK_TEXT}[+-][0-9]{{2}}(?::[0-9]{{2}}){{0,2}}(?: BC)?|-?infinity")
_NATURAL = pa.timestamp("us", "UTC")


def _in_range(text: pa.Array) -> Any:
    us = moments_us(text, zoned=True)
    if len(us) and (us.min() < LAKE_MIN_US or us.max() > LAKE_MAX_US):
        raise pa.ArrowInvalid("a timestamp outside the years 0001 to 9999")
    return us


def to_timestamp(text: pa.Array) -> Converted:
    """Convert to timestamp(us, UTC)[N]; infinities, BC and years past 9999 are bad."""

    def vector(some: pa.Array) -> pa.Array:
        return with_nulls(_in_range(some).view("datetime64[us]"), validity(some), pa.timestamp("us")).cast(_NATURAL)

    return convert_with("timestamptz", text, vector, _COMMON, lake_us)


def _zoned(fraction: int | None) -> Convert:
    def vector(text: pa.Array) -> pa.Array:
        return string_rows(*moment_text(_in_range(text).astype(np.int64), fraction), validity(text))

    def one(text: str) -> Any:
        return text if text in ("infinity", "-infinity") else iso_moment(parse_moment(text), fraction)

    return lambda text: convert_with("timestamptz", text, vector, _COMMON, one)


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """ZonedTimestamp in every mode, with the column's number of decimals: six by default, no fixed number for 0."""
    digits = fraction_digits(column.modifier)
    fraction = 6 if digits is None else digits or None
    schema = semantic.logical("string", semantic.ZONED_TIMESTAMP)
    event = EventConverter(schema, pa.string(), _zoned(fraction), fallback="1970-01-01T00:00:00Z")
    return ColumnCodec(NaturalConverter(_NATURAL, to_timestamp, _IS_MISFIT), event)


RULES: tuple[TypeRule, ...] = (builtin("timestamptz", build, "timestamptz"),)
