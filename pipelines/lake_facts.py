"""What is only known once a run has written: a lake table's columns and its number of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cdc_core.schema.table import TableId, TableSchema
from pipelines import catalogue, metadata
from pipelines.site import Site


class LakeFacts:
    """Metadata of lake tables as they are now: columns from the cached catalogue, rows from Delta's own log."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._schemas: dict[TableId, TableSchema | None] = {
            table.id: table.schema for table in (*site.tables, *catalogue.read(site.state_path))
        }

    def of(self, table: TableId, spark: Callable[[], Any] | None = None) -> metadata.Metadata:
        """``dagster/column_schema`` and ``dagster/row_count``, as far as they are known.

        ``spark`` counts the rows where the log alone does not tell; it is asked for nothing otherwise.
        """
        found: metadata.Metadata = {}
        schema = self._schemas.get(table)
        if schema is not None:
            found["dagster/column_schema"] = metadata.column_schema(schema)
        rows = self._rows(table, spark) if self._site.lake_path else None
        if rows is not None:
            found["dagster/row_count"] = rows
        return found

    def _rows(self, table: TableId, spark: Callable[[], Any] | None) -> int | None:
        from cdc_core.sink.delta.paths import LakePaths
        from cdc_core.sink.delta.row_count import counted_rows, row_count

        path = LakePaths(self._site.lake_path, self._site.name).lake(table)
        rows = row_count(path)
        if rows is None and spark is not None:
            return counted_rows(spark(), path)
        return rows
