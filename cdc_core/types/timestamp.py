"""timestamp without time zone, interpreted as UTC."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cdc_core.arrays import Ints
from cdc_core.schema import Column, ConnectSchema
from cdc_core.types import semantic
from cdc_core.types._kernels import string_rows, validity, with_nulls
from cdc_core.types._slow_path import convert_with
from cdc_core.types._temporal import (
    CLOCK_TEXT,
    DAY_TEXT,
    INT64_MAX,
    INT64_MIN,
    LAKE_MAX_US,
    LAKE_MIN_US,
    SECOND_US,
    iso_moment,
    moment_text,
    moments_us,
    parse_moment,
    wrap64,
)
from cdc_core.types.codec import ColumnCodec, Convert, Converted, EventConverter, NaturalConverter
from cdc_core.types.options import TimePrecisionMode, TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, builtin, misfits
from cdc_core.types.typmod import fraction_digits

_COMMON = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?$"
# The same for the years that are entirely in the range of nanoseconds.
_NANO_YEARS = "(?:16(?:7[89]|[89][0-9])|1[7-9][0-9]{2}|2[01][0-9]{2}|22(?:[0-5][0-9]|6[01]))"
_COMMON_NANOS = _COMMON.replace("[0-9]{4}", _NANO_YEARS, 1)
_NATURAL = pa.timestamp("us")


def lake_us(text: str) -> int:
    """Return the microseconds of a timestamp in the range of a lake's timestamp, else raise ValueError."""
    us = parse_moment(text)
    if not LAKE_MIN_US <= us <= LAKE_MAX_US:
        raise ValueError("outside the years 0001 to 9999")
    return us


def to_timestamp(text: pa.Array) -> Converted:
    """Convert to timestamp(us)[N] without zone; infinities, BC and years past 9999 are bad."""
    return convert_with("timestamp", text, lambda some: some.cast(_NATURAL), _COMMON, lake_us)


@dataclass(frozen=True, slots=True)
class _Unit:
    """A number since 1970: its schema, and its computation from microseconds, vectorized and for one rare text."""

    schema: ConnectSchema
    of_us: Callable[[Ints], Ints]
    of_text: Callable[[str], int]
    common: str = _COMMON


def _micros(text: str) -> int:
    # Java converts whole seconds to microseconds by TimeUnit, which is limited to the largest long, and adds the rest.
    seconds, rest = divmod(parse_moment(text), SECOND_US)
    whole = INT64_MAX if seconds > INT64_MAX // SECOND_US else seconds * SECOND_US
    return wrap64(whole + rest)


def _nanos_of_us(us: Ints) -> Ints:
    if len(us) and (int(us.min()) <= INT64_MIN // 1000 or int(us.max()) > INT64_MAX // 1000):
        raise pa.ArrowInvalid("beyond 64 bits of nanoseconds")
    return us * 1000


def _nanos(text: str) -> int:
    if text in ("infinity", "-infinity"):
        return INT64_MAX if text == "infinity" else INT64_MIN
    # Java multiplies whole seconds exactly, and an overflow has no value.
    seconds, rest = divmod(parse_moment(text), SECOND_US)
    whole, nanos = seconds * 1_000_000_000, seconds * 1_000_000_000 + rest * 1000
    if whole < INT64_MIN or nanos > INT64_MAX:
        raise ValueError("outside of what 64 bits of nanoseconds reach")
    return nanos


_MILLIS = _Unit(semantic.logical("int64", semantic.TIMESTAMP), lambda us: us // 1000, lambda t: parse_moment(t) // 1000)
_MICROS = _Unit(semantic.logical("int64", semantic.MICRO_TIMESTAMP), lambda us: us, _micros)
_NANOS = _Unit(semantic.logical("int64", semantic.NANO_TIMESTAMP), _nanos_of_us, _nanos, _COMMON_NANOS)
_CONNECT = _Unit(semantic.logical("int64", semantic.CONNECT_TIMESTAMP), _MILLIS.of_us, _MILLIS.of_text)


def _unit(mode: TimePrecisionMode, digits: int | None) -> _Unit:
    if mode is TimePrecisionMode.CONNECT:
        return _CONNECT
    if mode is TimePrecisionMode.NANOSECONDS:
        return _NANOS
    if mode is not TimePrecisionMode.MICROSECONDS and digits is not None and digits <= 3:
        return _MILLIS
    return _MICROS


def _number_converter(unit: _Unit) -> Convert:
    def vector(text: pa.Array) -> pa.Array:
        return with_nulls(unit.of_us(moments_us(text, zoned=False)), validity(text), pa.int64())

    return lambda text: convert_with("timestamp", text, vector, unit.common, unit.of_text)


def _iso(text: pa.Array) -> Converted:
    def vector(some: pa.Array) -> pa.Array:
        return string_rows(*moment_text(moments_us(some, zoned=False), None), validity(some))

    def one(value: str) -> Any:
        return iso_moment(parse_moment(value), None)

    return convert_with("timestamp", text, vector, _COMMON, one)


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """timestamp(us) in the lake; a number, its unit by mode and precision, or ISO text in events."""
    natural = NaturalConverter(_NATURAL, to_timestamp, misfits(rf"{DAY_TEXT} {CLOCK_TEXT}(?: BC)?|-?infinity"))
    mode = options.time_precision_mode
    if mode is TimePrecisionMode.ISOSTRING:
        schema = semantic.logical("string", semantic.ISO_TIMESTAMP)
        return ColumnCodec(natural, EventConverter(schema, pa.string(), _iso, fallback="1970-01-01T00:00:00Z"))
    unit = _unit(mode, fraction_digits(column.modifier))
    return ColumnCodec(natural, EventConverter(unit.schema, pa.int64(), _number_converter(unit), fallback=0))


RULES: tuple[TypeRule, ...] = (builtin("timestamp", build, "timestamp"),)
