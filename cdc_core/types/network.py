"""Network addresses: inet, cidr, macaddr, macaddr8. Strings in both representations, as the server prints them."""

from __future__ import annotations

from cdc_core.schema import Column
from cdc_core.types._strings import text_codec
from cdc_core.types.codec import ColumnCodec
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, builtin


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The codec of a network address."""
    return text_codec(options)


RULES: tuple[TypeRule, ...] = (builtin("network", build, "inet", "cidr", "macaddr", "macaddr8"),)
