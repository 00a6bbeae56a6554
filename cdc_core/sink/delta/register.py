"""Registers lake tables in Spark's catalogue, for SQL by name: ``<database>.<schema>_<table>``."""

from __future__ import annotations

from typing import Any

from cdc_core.schema.table import TableId


def register(spark: Any, database: str, table: TableId, path: str) -> None:
    """Create the database and an entry for the Delta table at ``path``, unless they exist.

    The entry contains only the path, so changes of the table need no update. The session's settings determine the
    catalogue (``spark.sql.catalogImplementation=hive`` for a metastore).
    """
    session = spark.newSession()
    session.sql(f"CREATE DATABASE IF NOT EXISTS {_quoted(database)}")
    name = f"{_quoted(database)}.{_quoted(f'{table.schema}_{table.table}')}"
    escaped = path.replace("\\", "\\\\").replace("'", "\\'")
    session.sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION '{escaped}'")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
