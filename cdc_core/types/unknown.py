"""Every type that no other rule claims: text in the lake; in events left out, or opaque with include.unknown.datatypes.

Among them pg_lsn, tsquery, jsonpath, txid_snapshot, the reg* types, tid, and whatever an extension brings.
"""

from __future__ import annotations

from cdc_core.schema.table import Column
from cdc_core.types._opaque import opaque_codec
from cdc_core.types.codec import ColumnCodec
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The codec of a column whose type nobody knows."""
    return opaque_codec(options)


RULES: tuple[TypeRule, ...] = (TypeRule("unknown", build, (), None),)
