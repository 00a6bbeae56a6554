"""char, varchar, text, name, "char", citext and isbn: the text printed by the server, char(n) with its padding."""

from __future__ import annotations

import dataclasses

from cdc_core.schema import Column
from cdc_core.types._strings import text_codec
from cdc_core.types.codec import ColumnCodec
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, builtin, extension


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """A string in both representations."""
    return text_codec(options)


def build_name(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """A string too; but when streaming, Debezium treats name as an unknown type, whose values it leaves out."""
    codec = text_codec(options)
    if options.include_unknown_datatypes or codec.event is None:
        return codec
    return dataclasses.replace(codec, event=dataclasses.replace(codec.event, is_streamed=False))


RULES: tuple[TypeRule, ...] = (
    builtin("character", build, "text", "varchar", "bpchar", "char"),
    builtin("name", build_name, "name"),
    extension("character", build, "citext", "isbn"),
)
