"""Registers lake tables in Spark's catalogue, for SQL by name: ``<database>.<schema>_<table>``."""

from __future__ import annotations

import logging
import zlib
from typing import Any
from urllib.parse import unquote

from cdc_core.lake.delta.folder import delta_uri
from cdc_core.schema import TableId

_log = logging.getLogger(__name__)


def register(spark: Any, database: str, table: TableId, path: str) -> None:
    """Create the database and an entry for the Delta table at ``path``, unless they exist.

    The entry contains only the path, so changes of the table need no update. The session's settings determine the
    catalogue (``spark.sql.catalogImplementation=hive`` for a metastore). If the name is that of another table already
    (names are not case-sensitive, and ``a_b.c`` has the name of ``a.b_c``), a checksum of the table's name is appended.
    """
    session = spark.newSession()
    session.sql(f"CREATE DATABASE IF NOT EXISTS {_quoted(database)}")
    plain = f"{table.schema}_{table.table}"
    own = f"{plain}_{zlib.crc32(f'{table.schema}/{table.table}'.encode()):08x}"
    escaped = path.replace("\\", "\\\\").replace("'", "\\'")
    for name in (plain, own):
        entry = f"{_quoted(database)}.{_quoted(name)}"
        session.sql(f"CREATE TABLE IF NOT EXISTS {entry} USING delta LOCATION '{escaped}'")
        (row,) = session.sql(f"DESCRIBE DETAIL {entry}").select("location").collect()
        if delta_uri(unquote(row[0])) == delta_uri(path):
            return
        _log.warning("%s in Spark's catalogue is not %s: its location is %s.", name, table, row[0])


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
