"""Ranges and multiranges: the server's canonical text.

Debezium supports the six built-in ranges. Multiranges and ranges created by ``create type`` are unknown types to it.
"""

from __future__ import annotations

from cdc_core.schema import Column, TypeKind
from cdc_core.types._opaque import opaque_codec
from cdc_core.types._strings import text_codec
from cdc_core.types.codec import ColumnCodec
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import CATALOG, Resolve, TypeRule, of_kind

BUILTIN = ("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange")


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The codec of a built-in range."""
    return text_codec(options)


def build_other(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The codec of a multirange, or of a user's range type."""
    return opaque_codec(options)


RULES: tuple[TypeRule, ...] = (
    TypeRule("range", build, BUILTIN, TypeKind.RANGE, CATALOG),
    of_kind("own range", build_other, TypeKind.RANGE),
    of_kind("multirange", build_other, TypeKind.MULTIRANGE),
)
