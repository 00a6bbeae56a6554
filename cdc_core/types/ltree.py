"""ltree: a label path as text, in events as ``io.debezium.data.Ltree``. (lquery and ltxtquery are unknown types.)"""

from __future__ import annotations

from cdc_core.schema import Column
from cdc_core.types._strings import named, text_codec
from cdc_core.types.codec import ColumnCodec
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, extension


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The codec of an ltree column."""
    return text_codec(options, named("io.debezium.data.Ltree"))


RULES: tuple[TypeRule, ...] = (extension("ltree", build, "ltree"),)
