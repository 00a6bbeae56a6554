"""date.

Debezium reads the stream's dates from text and a query's through the JDBC driver, whose old calendar classes lose the
era, do not have the 5th to 14th of October 1582, and have other infinities: ``snapshot_convert`` reproduces that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.schema import Column, ConnectSchema
from cdc_core.types import semantic
from cdc_core.types._kernels import validity, with_nulls
from cdc_core.types._slow_path import convert_with, refuse
from cdc_core.types._temporal import DAY_TEXT, date_of, days_of, iso_date, parse_date
from cdc_core.types.codec import ColumnCodec, Convert, Converted, EventConverter, NaturalConverter
from cdc_core.types.options import TimePrecisionMode, TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, builtin, misfits

_COMMON = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
# PostgresValueConverter's values for infinite dates: -5877611-06-21 and the day before.
_PLUS_INFINITY, _MINUS_INFINITY = -2_147_472_692, -2_147_472_691
_PLUS_INFINITY_DATE, _MINUS_INFINITY_DATE = (-5_877_611, 6, 21), (-5_877_611, 6, 22)
# java.sql.Date of the driver's infinite timestamps: their year of era, month and day.
_PLUS_INFINITY_JDBC, _MINUS_INFINITY_JDBC = (292_278_994, 8, 16), (292_269_055, 12, 2)
# Days skipped at the end of the Julian calendar, as Gregorian day numbers; the driver's lenient calendar adds ten.
_GAP_FIRST, _GAP_LAST = days_of(1582, 10, 5), days_of(1582, 10, 14)


def to_date(text: pa.Array) -> Converted:
    """Convert to date32[N]; BC, infinity and years past 9999 are bad."""
    return convert_with("date", text, lambda some: some.cast(pa.date32()), _COMMON, refuse)


def _streamed(text: str) -> tuple[int, int, int]:
    if text in ("infinity", "-infinity"):
        return _PLUS_INFINITY_DATE if text == "infinity" else _MINUS_INFINITY_DATE
    return parse_date(text)


def _queried(text: str) -> tuple[int, int, int]:
    if text in ("infinity", "-infinity"):
        return _PLUS_INFINITY_JDBC if text == "infinity" else _MINUS_INFINITY_JDBC
    year, month, day = parse_date(text)
    days = days_of(year, month, day)
    if _GAP_FIRST <= days <= _GAP_LAST:
        return date_of(days + 10)
    return (1 - year if year <= 0 else year), month, day


def _int32(days: int) -> int:
    return (days + 2**31) % 2**32 - 2**31


def _days_converter(read: Callable[[str], tuple[int, int, int]], queried: bool) -> Convert:
    def vector(text: pa.Array) -> pa.Array:
        days = text.cast(pa.date32()).cast(pa.int32())
        if not queried:
            return days
        numbers = pc.fill_null(days, 0).to_numpy(zero_copy_only=False)
        gap = (numbers >= _GAP_FIRST) & (numbers <= _GAP_LAST)
        return with_nulls(np.where(gap, numbers + 10, numbers), validity(text), pa.int32()) if gap.any() else days

    def one(text: str) -> Any:
        return _int32(days_of(*read(text)))

    return lambda text: convert_with("date", text, vector, _COMMON, one)


def _iso_converter(read: Callable[[str], tuple[int, int, int]], queried: bool) -> Convert:
    def vector(text: pa.Array) -> pa.Array:
        days = text.cast(pa.date32()).cast(pa.int32())
        if queried:
            numbers = pc.fill_null(days, 0).to_numpy(zero_copy_only=False)
            if ((numbers >= _GAP_FIRST) & (numbers <= _GAP_LAST)).any():
                raise pa.ArrowInvalid("a date that does not exist in the driver's calendar")
        return pc.binary_join_element_wise(text, "Z", "")

    def one(text: str) -> Any:
        date = read(text)
        days_of(*date)  # raises ValueError for an invalid date
        return iso_date(*date) + "Z"

    return lambda text: convert_with("date", text, vector, _COMMON, one)


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """date32 in the lake; days since 1970 or ISO text in events."""
    mode = options.time_precision_mode
    if mode is TimePrecisionMode.ISOSTRING:
        schema: ConnectSchema = semantic.logical("string", semantic.ISO_DATE)
        event = EventConverter(
            schema,
            pa.string(),
            _iso_converter(_streamed, False),
            fallback="1970-01-01Z",
            snapshot_convert=_iso_converter(_queried, True),
        )
    else:
        connect = mode is TimePrecisionMode.CONNECT
        event = EventConverter(
            semantic.logical("int32", semantic.CONNECT_DATE if connect else semantic.DATE),
            pa.int32(),
            _days_converter(_streamed, False),
            fallback=0,
            snapshot_convert=_days_converter(_queried, True),
        )
    return ColumnCodec(NaturalConverter(pa.date32(), to_date, misfits(rf"{DAY_TEXT}(?: BC)?|-?infinity")), event)


RULES: tuple[TypeRule, ...] = (builtin("date", build, "date"),)
