"""Lake tables in Spark's catalogue, so that SQL finds them by name: ``<database>.<schema>_<table>``."""

from __future__ import annotations

from typing import Any

from cdc_core.schema.table import TableId


def register(spark: Any, database: str, table: TableId, path: str) -> None:
    """Make the database and an entry for the Delta table at ``path``, unless they are there.

    The entry holds the path alone: what the table becomes shows by itself. Which catalogue it is, the session's own
    settings say (``spark.sql.catalogImplementation=hive`` for a metastore).
    """
    session = spark.newSession()
    session.sql(f"CREATE DATABASE IF NOT EXISTS {_quoted(database)}")
    name = f"{_quoted(database)}.{_quoted(f'{table.schema}_{table.table}')}"
    escaped = path.replace("\\", "\\\\").replace("'", "\\'")
    session.sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION '{escaped}'")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
