"""boolean."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.schema import Column
from cdc_core.types import semantic
from cdc_core.types.codec import ColumnCodec, Converted, EventConverter, NaturalConverter
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, builtin


def convert(text: pa.Array) -> Converted:
    """Convert ``t`` and ``f`` to boolean[N]; nulls stay null, anything else is bad."""
    true = pc.equal(text, "t")
    unread = pc.fill_null(pc.invert(pc.or_(true, pc.equal(text, "f"))), False)
    if not pc.any(unread).as_py():
        return Converted(true)
    return Converted(pc.if_else(unread, pa.scalar(None, pa.bool_()), true), unread)


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """boolean in both representations."""
    event = EventConverter(semantic.plain("boolean"), pa.bool_(), convert, fallback=False)
    return ColumnCodec(NaturalConverter(pa.bool_(), convert), event)


RULES: tuple[TypeRule, ...] = (builtin("boolean", build, "bool"),)
