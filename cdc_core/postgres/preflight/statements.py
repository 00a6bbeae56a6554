"""Statements that correct what a check found: complete and quoted, so that they can be pasted into psql.

Names are always quoted. No statement has a password or a value of a row in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from psycopg import sql

from cdc_core.schema import TableId


def setting(name: str, value: str) -> str:
    """``ALTER SYSTEM``, which a server's own superuser may run; it cannot run in a transaction block."""
    return _text(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.SQL(name), sql.Literal(value)))


def reload_settings() -> str:
    """Let the server read its settings again; some need a restart instead."""
    return "SELECT pg_reload_conf();"


def allow_replication(role: str, service_role: str = "") -> str:
    """``service_role``: the role by which a managed service grants REPLICATION, empty if there is none."""
    if service_role:
        return _text(sql.SQL("GRANT {} TO {}").format(sql.Identifier(service_role), sql.Identifier(role)))
    return _text(sql.SQL("ALTER ROLE {} REPLICATION").format(sql.Identifier(role)))


def bypass_row_security(role: str) -> str:
    """Let the role read every row of tables with policies."""
    return _text(sql.SQL("ALTER ROLE {} BYPASSRLS").format(sql.Identifier(role)))


def grant_connect(database: str, role: str) -> str:
    """Let the role connect to the database."""
    parts = sql.Identifier(database), sql.Identifier(role)
    return _text(sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(*parts))


def grant_create(database: str, role: str) -> str:
    """Let the role create publications in the database."""
    parts = sql.Identifier(database), sql.Identifier(role)
    return _text(sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(*parts))


def grant_usage(schemas: Iterable[str], role: str) -> str:
    """Grant USAGE on the schemas."""
    names = sql.SQL(", ").join(map(sql.Identifier, schemas))
    return _text(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(names, sql.Identifier(role)))


def grant_select(tables: Sequence[TableId], role: str) -> str:
    """Let the role read the tables."""
    return _text(sql.SQL("GRANT SELECT ON TABLE {} TO {}").format(_tables(tables), sql.Identifier(role)))


def identity_full(table: TableId) -> str:
    """Let changes of the table contain the whole old row."""
    return _text(sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(sql.Identifier(*table)))


def create_role(role: str) -> str:
    """Make a role that can log in; without a password."""
    return _text(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))


def allow_login(role: str) -> str:
    """Let the role log in."""
    return _text(sql.SQL("ALTER ROLE {} LOGIN").format(sql.Identifier(role)))


def create_publication(name: str, tables: Sequence[TableId] | None, *, via_root: bool) -> str:
    """``tables``: None for all tables of the database."""
    target = sql.SQL("ALL TABLES") if tables is None else sql.SQL("TABLE {}").format(_tables(tables))
    more = " WITH (publish_via_partition_root = true)" if via_root else ""
    made = sql.SQL("CREATE PUBLICATION {} FOR {}").format(sql.Identifier(name), target)
    return _text(made, more)


def add_to_publication(name: str, tables: Sequence[TableId]) -> str:
    """Publish more tables."""
    return _text(sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(sql.Identifier(name), _tables(tables)))


def drop_from_publication(name: str, tables: Sequence[TableId]) -> str:
    """Publish fewer tables."""
    return _text(sql.SQL("ALTER PUBLICATION {} DROP TABLE {}").format(sql.Identifier(name), _tables(tables)))


def publish_operations(name: str, operations: Sequence[str]) -> str:
    """``operations``: insert, update, delete, truncate."""
    value = sql.Literal(", ".join(operations))
    return _text(sql.SQL("ALTER PUBLICATION {} SET (publish = {})").format(sql.Identifier(name), value))


def drop_slot(name: str) -> str:
    """Remove a replication slot."""
    return _text(sql.SQL("SELECT pg_drop_replication_slot({})").format(sql.Literal(name)))


def _tables(tables: Sequence[TableId]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(table.schema, table.table) for table in tables)


def _text(statement: sql.Composed, more: str = "") -> str:
    return f"{statement.as_string()}{more};"
