"""The bounds of a table's integer key, and whether ranges of it correspond to ranges of pages."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import sql

from cdc_core.postgres.connection import Connection
from cdc_core.postgres.sqlstate import one_row
from cdc_core.schema import TableSchema

# The planner's correlation, from -1 to 1, for the table alone, if visible to the role; none before the first ANALYZE.
_CORRELATION = """
SELECT correlation FROM pg_stats WHERE schemaname = %s AND tablename = %s AND attname = %s AND NOT inherited
"""


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """The least and the greatest value of a column.

    ``correlation`` is that of its order with the order of the rows in the table's pages, from -1 to 1; None if unknown.
    """

    low: int
    high: int
    correlation: float | None


def key_bounds(connection: Connection, table: TableSchema, column: str) -> KeyBounds | None:
    """Return the bounds of an integer column that is the first of an index; without rows of inheriting tables.

    None for an empty table, and if the server refuses: reading the table's rows then reports the reason. The connection
    is in autocommit, so no lock remains. Raises psycopg.Error if the connection is lost.
    """
    query = sql.SQL("SELECT min({0}), max({0}) FROM ONLY {1}").format(
        sql.Identifier(column), sql.Identifier(table.id.schema, table.id.table)
    )
    try:
        low, high = one_row(connection, query)
        known = connection.execute(_CORRELATION, (table.id.schema, table.id.table, column)).fetchone()
    except psycopg.Error:
        if connection.broken:
            raise
        return None
    return None if low is None else KeyBounds(int(low), int(high), known[0] if known else None)


def range_condition(column: str, low: int | None, high: int | None) -> str:
    """Return the SQL condition ``low`` <= column < ``high`` for an integer column; None for no bound."""
    name = sql.Identifier(column).as_string()
    # A quoted constant has its type immediately: -9223372036854775808 unquoted is a numeric, for which no index is
    # used.
    parts = [] if low is None else [f"{name} >= '{low}'::pg_catalog.int8"]
    parts += [] if high is None else [f"{name} < '{high}'::pg_catalog.int8"]
    return " AND ".join(parts)
