"""Registers lake tables in Spark's catalogue, for SQL by name."""

from __future__ import annotations

import logging
from urllib.parse import unquote

from cdc_core.described import own_name_in_spark
from cdc_core.lake.delta.folder import delta_uri
from cdc_core.schema import TableId
from cdc_core.spark import Session

_log = logging.getLogger(__name__)


def register(spark: Session, database: str, name: str, table: TableId, path: str) -> None:
    """Create the database and an entry for the Delta table at ``path``, unless they exist.

    The entry contains only the path, so changes of the table need no update. The session's settings determine the
    catalogue (``spark.sql.catalogImplementation=hive`` for a metastore). ``name`` is that of ``names_in_spark``; if it
    is already that of a table elsewhere, as of another connector, ``own_name_in_spark`` is tried.
    """
    session = spark.newSession()
    session.sql(f"CREATE DATABASE IF NOT EXISTS {_quoted(database)}")
    escaped = path.replace("\\", "\\\\").replace("'", "\\'")
    for tried in dict.fromkeys((name, own_name_in_spark(table))):
        entry = f"{_quoted(database)}.{_quoted(tried)}"
        session.sql(f"CREATE TABLE IF NOT EXISTS {entry} USING delta LOCATION '{escaped}'")
        (row,) = session.sql(f"DESCRIBE DETAIL {entry}").select("location").collect()
        if delta_uri(unquote(row[0])) == delta_uri(path):
            return
        _log.warning("%s in Spark's catalogue is not %s: its location is %s.", tried, table, row[0])


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
