"""Arrow tables as views of a DuckDB connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from cdc_core.schema import TableId


def connected(connection: Any, tables: Mapping[TableId, pa.Table]) -> Any:
    """Return the connection (None: a new one in memory) with a view of each table. An existing view is replaced."""
    import duckdb

    made = duckdb.connect() if connection is None else connection
    for table, rows in tables.items():
        # A view refers to the registered object by its name, so the name must be the table's only.
        source = f"wal2lake: {table}"
        made.register(source, rows)
        made.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(table.schema)}")
        view = f"{_quoted(table.schema)}.{_quoted(table.table)}"
        made.execute(f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM {_quoted(source)}")
    return made


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
