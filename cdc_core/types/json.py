"""json, jsonb: the server's text, in events with a separate logical name."""

from __future__ import annotations

from cdc_core.schema import Column
from cdc_core.types import semantic
from cdc_core.types._strings import text_codec
from cdc_core.types.codec import ColumnCodec
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, builtin


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """A string in both representations."""
    return text_codec(options, semantic.logical("string", semantic.JSON))


RULES: tuple[TypeRule, ...] = (builtin("json", build, "json", "jsonb"),)
