"""What the tests ask of a lake: read by delta-rs, which shares nothing with what wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from cdc_core.config.connector import ConnectorConfig, load
from cdc_core.demo.verify import Comparison, compare
from cdc_core.lake.paths import LakePaths
from cdc_core.schema.table import TableId


def write_properties(path: Path, properties: dict[str, Any]) -> Path:
    """A .properties file of these pairs, backslashes escaped as Java's format wants them."""
    lines = [f"{key}={str(value).replace(chr(92), chr(92) * 2)}\n" for key, value in properties.items()]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def lake_settings(folder: Path) -> dict[str, str]:
    """A lake and a state folder in ``folder``, and merges that do not wait for more changes."""
    return {
        "wal2lake.lake.path": str(folder / "lake"),
        "wal2lake.state.path": str(folder / "state"),
        "wal2lake.freshness.seconds": "0",
    }


def query(path: Path, sql: str) -> pa.Table:
    """Run SQL over the Delta table at ``path``, which is called ``t``."""
    return pa.table(QueryBuilder().register("t", DeltaTable(str(path))).execute(sql))


def rows(path: Path, sql: str = "select * from t") -> list[dict[str, Any]]:
    """The rows of a query, as dictionaries."""
    found: list[dict[str, Any]] = query(path, sql).to_pylist()
    return found


def lake_path(config: ConnectorConfig, table: TableId) -> Path:
    """Where a lake table lies."""
    return Path(LakePaths(config.lake.lake_path, config.schema.topic_prefix).lake(table))


def changelog_path(config: ConnectorConfig, table: TableId) -> Path:
    """Where its changelog lies."""
    return Path(LakePaths(config.lake.lake_path, config.schema.topic_prefix).changelog(table))


def difference(properties: Path, tables: list[TableId]) -> list[Comparison]:
    """The tables whose lake side is not the source's rows exactly."""
    config = load(properties)
    found = compare(config.postgres, {table: lake_path(config, table) for table in tables})
    return [one for one in found if not one.is_equal]


def doubled_events(properties: Path, table: TableId) -> int:
    """Changelog rows beyond the first of their position."""
    path = changelog_path(load(properties), table)
    # Groups of two integers: distinct pairs as a structure take minutes for millions of rows.
    each = 'select count(*) as times from t group by "__commit_lsn", "__tx_index"'
    (found,) = rows(path, f"select coalesce(sum(times - 1), 0) as doubled from ({each})")
    return int(found["doubled"])
