"""replica.identity.autoset.values: the replica identities set for captured tables at start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from cdc_core.errors import ConfigError
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connection import Connection
from cdc_core.postgres.options import IdentityRule
from cdc_core.postgres.sqlstate import server_error
from cdc_core.schema import ReplicaIdentity, TableId, TableSchema
from cdc_core.selection import compile_pattern

_WORDS = {
    "DEFAULT": ReplicaIdentity.DEFAULT,
    "FULL": ReplicaIdentity.FULL,
    "NOTHING": ReplicaIdentity.NOTHING,
    "INDEX": ReplicaIdentity.INDEX,
}


@dataclass(frozen=True, slots=True)
class IdentityChange:
    """A table whose identity was to be changed. ``problem`` is the reason why it was not, empty if it was."""

    table: TableId
    rule: IdentityRule
    problem: str = ""


def rule_for(rules: Sequence[IdentityRule], table: TableId) -> IdentityRule | None:
    """Return the rule whose regex matches ``schema.table`` completely, regardless of case; None for none.

    Raises ConfigError if two rules with different identities match one table.
    """
    matching = {
        (rule.identity, rule.index): rule for rule in rules if compile_pattern(rule.table).fullmatch(str(table))
    }
    if len(matching) > 1:
        raise ConfigError(
            f"replica.identity.autoset.values sets more than one identity for table {table}.",
            "Change its expressions so that each table matches only one.",
        )
    return next(iter(matching.values()), None)


def autoset(
    connection: Connection, rules: Sequence[IdentityRule], tables: Sequence[TableSchema]
) -> list[IdentityChange]:
    """Alter the tables whose identity differs from their rule's; returns those changed and those refused.

    A missing privilege is not an error: the stream works with the existing identity. Raises ConfigError, SourceError or
    TransientError.
    """
    chosen = [(table, rule) for table in tables if (rule := rule_for(rules, table.id)) is not None]
    if not chosen:
        return []
    indexes = Catalog(connection).identity_indexes([table for table, _ in chosen])
    changes = []
    for table, rule in chosen:
        is_same = table.identity is _WORDS[rule.identity] and (
            rule.identity != "INDEX" or indexes.get(table.id) == rule.index
        )
        if not is_same:
            changes.append(IdentityChange(table.id, rule, _alter(connection, table.id, rule)))
    return changes


def _alter(connection: Connection, table: TableId, rule: IdentityRule) -> str:
    identity = sql.SQL("USING INDEX {}").format(sql.Identifier(rule.index)) if rule.index else sql.SQL(rule.identity)
    statement = sql.SQL("ALTER TABLE {} REPLICA IDENTITY {}").format(
        sql.Identifier(table.schema, table.table), identity
    )
    try:
        connection.execute(statement)
    except psycopg.errors.InsufficientPrivilege:
        return f"Only the owner of table {table} may run {statement.as_string()}."
    except psycopg.Error as error:
        raise server_error(error, f"setting the replica identity of table {table}") from None
    return ""
