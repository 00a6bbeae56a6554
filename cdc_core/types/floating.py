"""real and double precision. The server prints the shortest text that is read as the same number."""

from __future__ import annotations

import pyarrow as pa

from cdc_core.schema import Column
from cdc_core.types import semantic
from cdc_core.types._slow_path import convert_with, refuse
from cdc_core.types.codec import ColumnCodec, Converted, EventConverter, NaturalConverter
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, builtin

_COMMON = r"^(?:-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?|-?Infinity|NaN)$"
_TYPES = {"float4": (pa.float32(), "float"), "float8": (pa.float64(), "double")}


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The same float in both representations; NaN and the infinities are ordinary values."""
    name = column.type.name
    arrow_type, connect = _TYPES[name]

    def convert(text: pa.Array) -> Converted:
        return convert_with(name, text, lambda some: some.cast(arrow_type), _COMMON, refuse)

    event = EventConverter(semantic.plain(connect), arrow_type, convert, fallback=0.0)
    return ColumnCodec(NaturalConverter(arrow_type, convert), event)


RULES: tuple[TypeRule, ...] = (builtin("floating", build, *_TYPES),)
