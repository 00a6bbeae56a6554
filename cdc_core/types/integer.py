"""smallint, integer, bigint, their serials, and oid (unsigned 32 bit, stored as 64 bit)."""

from __future__ import annotations

import pyarrow as pa

from cdc_core.schema import Column
from cdc_core.types import semantic
from cdc_core.types._slow_path import convert_with, refuse
from cdc_core.types.codec import ColumnCodec, Convert, Converted, EventConverter, NaturalConverter
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, builtin

_TYPES = {"int2": pa.int16(), "int4": pa.int32(), "int8": pa.int64(), "oid": pa.int64()}
_CONNECT = {"int2": "int16", "int4": "int32", "int8": "int64", "oid": "int64"}


def converter(name: str) -> Convert:
    """Convert decimal digits to an integer of the type; values out of range are bad."""
    arrow_type = _TYPES[name]

    def convert(text: pa.Array) -> Converted:
        return convert_with(name, text, lambda some: some.cast(arrow_type), r"^-?[0-9]+$", refuse)

    return convert


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The same integer in both representations. A serial column's type is the integer's own."""
    name = column.type.name
    arrow_type, convert = _TYPES[name], converter(name)
    event = EventConverter(semantic.plain(_CONNECT[name]), arrow_type, convert, fallback=0)
    return ColumnCodec(NaturalConverter(arrow_type, convert), event)


RULES: tuple[TypeRule, ...] = (builtin("integer", build, *_TYPES),)
