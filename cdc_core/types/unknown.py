"""Every type that no other rule matches: text in the lake; in events left out or, by option, opaque.

The option is include.unknown.datatypes. Among these types are pg_lsn, tsquery, jsonpath, txid_snapshot, the reg* types,
tid, and those of other extensions.
"""

from __future__ import annotations

from cdc_core.schema import Column
from cdc_core.types._opaque import opaque_codec
from cdc_core.types.codec import ColumnCodec
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The codec of a column of an unknown type."""
    return opaque_codec(options)


RULES: tuple[TypeRule, ...] = (TypeRule("unknown", build, (), None),)
