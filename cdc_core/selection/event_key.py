"""The columns of a table's event key."""

from __future__ import annotations

from cdc_core.schema import KeyRule, TableSchema
from cdc_core.selection.patterns import compile_pattern


def key_columns(table: TableSchema, rules: tuple[KeyRule, ...]) -> tuple[str, ...]:
    """Return the names of the key's columns in their order, empty for a table without a key.

    Columns named by a rule of ``message.key.columns`` are used exclusively, in the order of the rules; else the primary
    key; else the first unique index; else none. A rule's table, a dot and a column are one regex, the dot included,
    that must match the entire ``schema.table.column``, regardless of case. A column named twice is used once.
    """
    chosen: list[str] = []
    for rule in rules:
        for named in rule.columns:
            pattern = compile_pattern(f"{rule.table}.{named}")
            chosen += [c.name for c in table.columns if pattern.fullmatch(f"{table.id}.{c.name}")]
    known = {column.name for column in table.columns}
    # A key column that the Relation does not have yet is from a newer catalogue than the row.
    return tuple(dict.fromkeys(chosen)) or tuple(name for name in table.key if name in known)
