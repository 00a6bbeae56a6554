"""Which columns make a table's event key."""

from __future__ import annotations

from cdc_core.schema.options import KeyRule
from cdc_core.schema.table import TableSchema
from cdc_core.selection.patterns import compile_pattern


def key_columns(table: TableSchema, rules: tuple[KeyRule, ...]) -> tuple[str, ...]:
    """Names of the key's columns in their order, empty for a table without a key.

    Columns that a rule of ``message.key.columns`` names come first and alone, in the order of the rules; else the
    primary key; else the first unique index; else none. A rule's table, a dot and a column make one regex, the dot
    included, that must match the whole of ``schema.table.column``, whatever the case. A column named twice counts once.
    """
    chosen: list[str] = []
    for rule in rules:
        for wanted in rule.columns:
            pattern = compile_pattern(f"{rule.table}.{wanted}")
            chosen += [c.name for c in table.columns if pattern.fullmatch(f"{table.id}.{c.name}")]
    known = {column.name for column in table.columns}
    # A key column the Relation does not have yet comes from a newer catalogue than the row.
    return tuple(dict.fromkeys(chosen)) or tuple(name for name in table.key if name in known)
