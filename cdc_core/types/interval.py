"""interval, as printed by the server with IntervalStyle postgres: ``1 year 2 mons 3 days 04:05:06.78``.

The lake stores that text, which is exact: months, days and time cannot be converted to each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools, Ints
from cdc_core.schema import Column
from cdc_core.types import semantic
from cdc_core.types._slow_path import scatter
from cdc_core.types._strings import NATURAL_TEXT
from cdc_core.types.codec import ColumnCodec, Converted, EventConverter
from cdc_core.types.options import IntervalHandlingMode, TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, builtin

Floats = npt.NDArray[np.float64]

_PATTERN = (
    r"^(?:\+?(?P<years>-?[0-9]+) years? ?)?(?:\+?(?P<months>-?[0-9]+) mons? ?)?(?:\+?(?P<days>-?[0-9]+) days? ?)?"
    r"(?:(?P<sign>[+-]?)(?P<hours>[0-9]+):(?P<minutes>[0-9]{2}):(?P<seconds>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,6}))?)?$"
)
_ZERO = "P0Y0M0DT0H0M0S"
_DAYS_A_MONTH = 365.25 / 12
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Parts:
    """The components of N intervals, each with its own sign; ``rare`` are non-null rows in another format."""

    years: Ints
    months: Ints
    days: Ints
    hours: Ints
    minutes: Ints
    micros: Ints  # of the seconds
    rare: Bools


def _parts(text: pa.Array) -> _Parts:
    groups = pc.extract_regex(text, _PATTERN)
    matched = groups.is_valid().to_numpy(zero_copy_only=False)
    sent = text.is_valid().to_numpy(zero_copy_only=False)

    def numbers(name: str) -> Ints:
        field = pc.fill_null(pc.struct_field(groups, name), "")
        values: Ints = pc.if_else(pc.equal(field, ""), "0", field).cast(pa.int64()).to_numpy(zero_copy_only=False)
        return values

    fraction = pc.fill_null(pc.struct_field(groups, "fraction"), "")
    below = pc.utf8_rpad(fraction, 6, "0").cast(pa.int64()).to_numpy(zero_copy_only=False)
    minus = pc.fill_null(pc.equal(pc.struct_field(groups, "sign"), "-"), False).to_numpy(zero_copy_only=False)
    sign = np.where(minus, -1, 1)
    hours = numbers("hours")
    return _Parts(
        numbers("years"),
        numbers("months"),
        numbers("days"),
        hours * sign,
        numbers("minutes") * sign,
        (numbers("seconds") * 1_000_000 + below) * sign,
        # The driver stores hours in 32 bits and refuses more.
        sent & (~matched | (hours > _INT32_MAX)),
    )


def _seconds(parts: _Parts) -> Floats:
    """Return the seconds as computed by the driver: whole seconds plus a fraction, each converted to double first.

    Their sum is the double nearest to both, which need not be the one nearest to the decimal number.
    """
    whole = np.trunc(parts.micros / 1_000_000)
    seconds: Floats = whole + (parts.micros - whole.astype(np.int64) * 1_000_000) / 1_000_000.0
    return seconds


def to_micros(text: pa.Array) -> Converted:
    """Return microseconds as computed by Debezium: in doubles, a month being 365.25/12 days, rounded towards zero."""
    parts = _parts(text)
    days = (parts.years * 12 + parts.months) * _DAYS_A_MONTH + parts.days
    total = (((days * 24 + parts.hours) * 60 + parts.minutes) * 60 + _seconds(parts)) * 1e6
    # A cast to long saturates.
    inside = np.abs(total) < 2.0**63
    micros = np.where(inside, np.where(inside, total, 0).astype(np.int64), np.where(total > 0, 2**63 - 1, -(2**63)))
    values = pa.array(micros, pa.int64(), mask=~text.is_valid().to_numpy(zero_copy_only=False))
    return scatter("interval", text, values, parts.rare, lambda value: _infinite(value, 0))


def to_iso(text: pa.Array) -> Converted:
    """Return ``P1Y2M3DT4H5M6.78S``, with every component and its own sign.

    The seconds are the shortest decimal text of their double, truncated (not rounded) at nine decimals, without
    trailing zeros. If that double is one step nearer to zero than the decimal number's, the truncation makes it
    visible: 1.999999 s is written ``1.999998999S``, while 6.789 s stays ``6.789S``.
    """
    parts = _parts(text)
    # A step is far smaller than 1e-9: truncation removes one nanosecond if below the number, nothing if above it.
    is_below = np.abs(_seconds(parts)) < np.abs(parts.micros) / 1_000_000
    nanos = np.abs(parts.micros) * 1000 - is_below

    def words(values: Ints) -> pa.Array:
        return pa.array(values).cast(pa.string())

    sign = pc.if_else(pa.array(parts.micros < 0), "-", "")
    fraction = pc.utf8_rtrim(pc.utf8_lpad(words(nanos % 1_000_000_000), 9, "0"), "0")
    point = pc.if_else(pc.equal(fraction, ""), "", ".")
    whole = words(nanos // 1_000_000_000)
    written = pc.binary_join_element_wise(
        *("P", words(parts.years), "Y", words(parts.months), "M", words(parts.days), "DT", words(parts.hours)),
        *("H", words(parts.minutes), "M", sign, whole, point, fraction, "S", ""),
    )
    values = pc.if_else(text.is_valid(), written, pa.scalar(None, pa.string()))
    return scatter("interval", text, values, parts.rare, lambda value: _infinite(value, _ZERO))


def _infinite(text: str, nothing: Any) -> Any:
    # The driver finds no component in these words, and so returns an interval of zero.
    if text in ("infinity", "-infinity"):
        return nothing
    raise ValueError("not an interval in style postgres")


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """Text in the lake; MicroDuration or ISO text in events."""
    if options.interval_handling_mode is IntervalHandlingMode.STRING:
        schema = semantic.logical("string", semantic.INTERVAL)
        return ColumnCodec(NATURAL_TEXT, EventConverter(schema, pa.string(), to_iso, fallback=_ZERO))
    schema = semantic.logical("int64", semantic.MICRO_DURATION)
    return ColumnCodec(NATURAL_TEXT, EventConverter(schema, pa.int64(), to_micros, fallback=0))


RULES: tuple[TypeRule, ...] = (builtin("interval", build, "interval"),)
