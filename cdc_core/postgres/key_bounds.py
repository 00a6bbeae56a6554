"""The span of a table's integer key, and whether ranges of it are ranges of pages too."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import sql

from cdc_core.postgres.connect import Connection
from cdc_core.schema.table import TableSchema

# Of the planner, from -1 to 1, for the table alone, and only what the role may see; none before the first ANALYZE.
_CORRELATION = """
SELECT correlation FROM pg_stats WHERE schemaname = %s AND tablename = %s AND attname = %s AND NOT inherited
"""


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """The least and the greatest value of a column. ``correlation`` is that of its order with the order of the rows in
    the table's pages, from -1 to 1; None where it is not known.
    """

    low: int
    high: int
    correlation: float | None


def key_bounds(connection: Connection, table: TableSchema, column: str) -> KeyBounds | None:
    """The bounds of an integer column that an index leads with, of the rows of the table alone (none of heirs').

    None for an empty table, and where the server refuses: whoever reads the table's rows is told why. The connection is
    in autocommit, so no lock stays. Raises psycopg.Error where the connection is lost.
    """
    query = sql.SQL("SELECT min({0}), max({0}) FROM ONLY {1}").format(
        sql.Identifier(column), sql.Identifier(table.id.schema, table.id.table)
    )
    try:
        found = connection.execute(query).fetchone()
        known = connection.execute(_CORRELATION, (table.id.schema, table.id.table, column)).fetchone()
    except psycopg.Error:
        if connection.broken:
            raise
        return None
    if found is None or found[0] is None:
        return None
    return KeyBounds(int(found[0]), int(found[1]), known[0] if known else None)


def range_condition(column: str, low: int | None, high: int | None) -> str:
    """The SQL condition that an integer column is ``low`` or more and less than ``high``; None for no bound."""
    name = sql.Identifier(column).as_string()
    # A quoted constant is of its type at once: -9223372036854775808 unquoted is a numeric, which no index helps.
    parts = [] if low is None else [f"{name} >= '{low}'::pg_catalog.int8"]
    parts += [] if high is None else [f"{name} < '{high}'::pg_catalog.int8"]
    return " AND ".join(parts)
