"""char, varchar, text, name, "char", citext and isbn: text as the server prints it, char(n) with its padding."""

from __future__ import annotations

from cdc_core.schema.table import Column
from cdc_core.types._strings import text_codec
from cdc_core.types.codec import ColumnCodec
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, builtin, extension


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """A string on both faces."""
    return text_codec(options)


RULES: tuple[TypeRule, ...] = (
    builtin("character", build, "text", "varchar", "bpchar", "char", "name"),
    extension("character", build, "citext", "isbn"),
)
