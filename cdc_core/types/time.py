"""time without time zone. The lake stores the server's text: no Spark type can represent 24:00:00."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from cdc_core.arrays import Ints
from cdc_core.schema import Column, ConnectSchema
from cdc_core.types import semantic
from cdc_core.types._kernels import string_rows, validity, with_nulls
from cdc_core.types._slow_path import convert_with
from cdc_core.types._strings import NATURAL_TEXT
from cdc_core.types._temporal import DAY_US, iso_moment, parse_time, time_text, times_us
from cdc_core.types.codec import ColumnCodec, Convert, EventConverter
from cdc_core.types.options import TimePrecisionMode, TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, builtin
from cdc_core.types.typmod import fraction_digits

_COMMON = r"^(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?$"


def _number_converter(arrow_type: pa.DataType, multiply: int, divide: int) -> Convert:
    def vector(text: pa.Array) -> pa.Array:
        return with_nulls(times_us(text) * multiply // divide, validity(text), arrow_type)

    def one(text: str) -> Any:
        return parse_time(text) * multiply // divide

    return lambda text: convert_with("time", text, vector, _COMMON, one)


def iso_converter(label: str, read: Callable[[pa.Array], Ints], common: str, one_us: Callable[[str], int]) -> Convert:
    """Return the converter to ``HH:MM:SS[.f]Z``; 24:00:00 becomes 00:00:00, as in Java's LocalTime."""

    def vector(text: pa.Array) -> pa.Array:
        valid = validity(text)
        us = read(text)
        return string_rows(*time_text(us), valid) if len(us) else pa.array([], pa.string())

    def one(text: str) -> Any:
        return iso_moment(one_us(text) % DAY_US, None).partition("T")[2]

    return lambda text: convert_with(label, text, vector, common, one)


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """Text in the lake; a number since midnight, its unit by mode and precision, or ISO text in events."""
    mode = options.time_precision_mode
    if mode is TimePrecisionMode.ISOSTRING:
        schema = semantic.logical("string", semantic.ISO_TIME)
        convert = iso_converter("time", times_us, _COMMON, parse_time)
        return ColumnCodec(NATURAL_TEXT, EventConverter(schema, pa.string(), convert, fallback="00:00:00Z"))
    schema, arrow_type, multiply, divide = _unit(mode, fraction_digits(column.modifier))
    event = EventConverter(schema, arrow_type, _number_converter(arrow_type, multiply, divide), fallback=0)
    return ColumnCodec(NATURAL_TEXT, event)


def _unit(mode: TimePrecisionMode, digits: int | None) -> tuple[ConnectSchema, pa.DataType, int, int]:
    if mode is TimePrecisionMode.CONNECT:
        return semantic.logical("int32", semantic.CONNECT_TIME), pa.int32(), 1, 1000
    if mode is TimePrecisionMode.ADAPTIVE and digits is not None and digits <= 3:
        return semantic.logical("int32", semantic.TIME), pa.int32(), 1, 1000
    if mode is TimePrecisionMode.NANOSECONDS:
        return semantic.logical("int64", semantic.NANO_TIME), pa.int64(), 1000, 1
    return semantic.logical("int64", semantic.MICRO_TIME), pa.int64(), 1, 1


RULES: tuple[TypeRule, ...] = (builtin("time", build, "time"),)
