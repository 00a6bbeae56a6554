"""From a column to its codec: an explicit, ordered list of rules, gathered by hand.

Adding a type means one family file that ends in ``RULES`` and one line here. Order matters only where two rules claim
the same type: the first wins.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from cdc_core.errors import InvariantError
from cdc_core.schema.table import Column
from cdc_core.types.codec import ColumnCodec, EventFace
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import TypeRule

RULES: tuple[TypeRule, ...] = ()


def resolve(column: Column, options: TypeOptions) -> ColumnCodec:
    """The codec of a column under the handling modes in ``options``.

    ``event`` is None where Debezium leaves the column out. Raises InvariantError when no rule claims the type, which
    the last rule (unknown types) rules out.
    """
    for rule in RULES:
        if rule.claims(column.type):
            return rule.build(column, options, resolve)
    raise InvariantError(f"No rule claims type {column.type.name} of column {column.name}.")
