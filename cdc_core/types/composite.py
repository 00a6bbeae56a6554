"""Composite types (``create type t as (…)`` and tables' row types): unknown to Debezium, text in the lake."""

from __future__ import annotations

from cdc_core.schema import Column, TypeKind
from cdc_core.types._opaque import opaque_codec
from cdc_core.types.codec import ColumnCodec
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, of_kind


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The codec of a composite column: ``(1,"a b",)``."""
    return opaque_codec(options)


RULES: tuple[TypeRule, ...] = (of_kind("composite", build, TypeKind.COMPOSITE),)
