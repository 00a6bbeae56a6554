"""time with time zone: the server's text in the lake, the same time in UTC in events."""

from __future__ import annotations

import re

import pyarrow as pa

from cdc_core.schema import Column
from cdc_core.types import semantic
from cdc_core.types._strings import NATURAL_TEXT
from cdc_core.types._temporal import parse_offset, parse_time, zoned_times_us
from cdc_core.types.codec import ColumnCodec, EventConverter
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, builtin
from cdc_core.types.time import iso_converter

_COMMON = r"^(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?[+-][0-9]{2}(?::[0-9]{2})?$"
_PARTS = re.compile(r"([\d:.]+)([+-][\d:]+)")


def _one_us(text: str) -> int:
    found = _PARTS.fullmatch(text)
    if found is None:
        raise ValueError("expected HH:MM:SS and an offset")
    return parse_time(found[1]) - parse_offset(found[2])


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """ZonedTime in every mode."""
    schema = semantic.logical("string", semantic.ZONED_TIME)
    convert = iso_converter("timetz", zoned_times_us, _COMMON, _one_us)
    return ColumnCodec(NATURAL_TEXT, EventConverter(schema, pa.string(), convert, fallback="00:00:00Z"))


RULES: tuple[TypeRule, ...] = (builtin("timetz", build, "timetz"),)
