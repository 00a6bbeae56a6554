"""Enums: the label as text, in events with the allowed labels, joined by commas in sort order."""

from __future__ import annotations

from cdc_core.schema import Column, TypeKind
from cdc_core.types._strings import named, text_codec
from cdc_core.types.codec import ColumnCodec
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, of_kind


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The codec of a column whose type is an enum."""
    return text_codec(options, named("io.debezium.data.Enum", (("allowed", ",".join(column.type.labels)),)))


RULES: tuple[TypeRule, ...] = (of_kind("enum", build, TypeKind.ENUM),)
