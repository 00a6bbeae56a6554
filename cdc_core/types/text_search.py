"""tsvector: the server's text, in events as ``io.debezium.data.Tsvector``. (tsquery is an unknown type.)"""

from __future__ import annotations

from cdc_core.schema import Column
from cdc_core.types._strings import named, text_codec
from cdc_core.types.codec import ColumnCodec
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, builtin


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The codec of a tsvector column."""
    return text_codec(options, named("io.debezium.data.Tsvector"))


RULES: tuple[TypeRule, ...] = (builtin("text search", build, "tsvector"),)
