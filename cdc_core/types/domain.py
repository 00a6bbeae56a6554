"""Domains: the base type, with the length and scale of the chain of domains.

A domain's column lacks two facts, because Debezium looks them up by the column's own type name: a default value, and
the placeholders of arrays and hstore for an unchanged TOAST value.
"""

from __future__ import annotations

import dataclasses

import pyarrow as pa

from cdc_core.errors import InvariantError
from cdc_core.schema import Column, TypeKind
from cdc_core.types._placeholder import placeholder_text
from cdc_core.types.codec import ColumnCodec
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, of_kind


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The codec of the domain's base type. As in the catalogue, the modifier nearest to the base is used."""
    base = column.type.inner
    if base is None:
        raise InvariantError(f"Domain {column.type.name} of column {column.name} has no base type.")
    modifier = column.type.inner_modifier if column.type.inner_modifier != -1 else column.modifier
    codec = resolve(dataclasses.replace(column, type=base, modifier=modifier), options)
    event = codec.event
    if event is None:
        return codec
    unavailable = event.unavailable
    if pa.types.is_nested(event.arrow_type):
        unavailable = None
    elif pa.types.is_string(event.arrow_type) and unavailable is not None:
        unavailable = placeholder_text(options)  # also for the JSON text of an hstore
    event = dataclasses.replace(event, unavailable=unavailable)
    return dataclasses.replace(codec, event=event)


RULES: tuple[TypeRule, ...] = (of_kind("domain", build, TypeKind.DOMAIN),)
