"""From a column to its codec: an explicit, ordered list of rules, gathered by hand.

Adding a type means one family file that ends in ``RULES`` and one line here. Order matters only where two rules claim
the same type: the first wins. The last family, unknown types, claims whatever is left.
"""

from __future__ import annotations

import dataclasses

from cdc_core.errors import InvariantError
from cdc_core.schema.table import Column
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
    """The codec of a column under the handling modes in ``options``.

    ``event`` is None where Debezium leaves the column out. Raises InvariantError when no rule claims the type, which
    the last rule (unknown types) rules out.
    """
    rule = rule_for(column)
    codec = rule.build(column, options, resolve)
    if codec.event is None:
        return codec
    event = dataclasses.replace(codec.event, default_value=with_default(column, codec.event))
    return dataclasses.replace(codec, event=event)


def rule_for(column: Column) -> TypeRule:
    """The first rule that claims the column's type."""
    for rule in RULES:
        if rule.claims(column.type):
            return rule
    raise InvariantError(f"No rule claims type {column.type.name} of column {column.name}.")
