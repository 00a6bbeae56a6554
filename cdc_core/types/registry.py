"""Selects the codec of a column: an explicit, ordered list of rules.

A new type is one family file that ends in ``RULES`` and one line here. The order matters only if two rules match the
same type: the first is used. The last family, unknown types, matches all remaining types.
"""

from __future__ import annotations

import dataclasses

from cdc_core.errors import InvariantError
from cdc_core.schema import Column
from cdc_core.types import (
    array,
    binary,
    bits,
    boolean,
    character,
    composite,
    date,
    domain,
    enum,
    floating,
    geometry,
    hstore,
    integer,
    interval,
    json,
    ltree,
    money,
    network,
    numeric,
    postgis,
    range,
    text_search,
    time,
    timestamp,
    timestamptz,
    timetz,
    unknown,
    uuid,
    vector,
    xml,
)
from cdc_core.types.codec import ColumnCodec
from cdc_core.types.default_value import with_default
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import TypeRule

RULES: tuple[TypeRule, ...] = (
    *boolean.RULES,
    *integer.RULES,
    *floating.RULES,
    *numeric.RULES,
    *money.RULES,
    *character.RULES,
    *binary.RULES,
    *bits.RULES,
    *uuid.RULES,
    *json.RULES,
    *xml.RULES,
    *date.RULES,
    *time.RULES,
    *timetz.RULES,
    *timestamp.RULES,
    *timestamptz.RULES,
    *interval.RULES,
    *network.RULES,
    *range.RULES,
    *geometry.RULES,
    *text_search.RULES,
    *ltree.RULES,
    *hstore.RULES,
    *postgis.RULES,
    *vector.RULES,
    *enum.RULES,
    *domain.RULES,
    *array.RULES,
    *composite.RULES,
    *unknown.RULES,
)


def resolve(column: Column, options: TypeOptions) -> ColumnCodec:
    """Return the codec of a column for the handling modes in ``options``.

    ``event`` is None if Debezium leaves the column out. Raises InvariantError if no rule matches the type, which the
    last rule (unknown types) prevents.
    """
    rule = rule_for(column)
    codec = rule.build(column, options, resolve)
    if codec.event is None:
        return codec
    event = dataclasses.replace(codec.event, default_value=with_default(column, codec.event))
    return dataclasses.replace(codec, event=event)


def rule_for(column: Column) -> TypeRule:
    """Return the first rule that matches the column's type."""
    for rule in RULES:
        if rule.claims(column.type):
            return rule
    raise InvariantError(f"No rule claims type {column.type.name} of column {column.name}.")
