"""What is only known once a run has written: a lake table's columns, its number of rows, and why it is paused."""

from __future__ import annotations

import dagster as dg

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

    def of(self, table: TableId) -> metadata.Metadata:
        """``dagster/column_schema`` and ``dagster/row_count``, as far as they are known."""
        found: metadata.Metadata = {}
        schema = self._schemas.get(table)
        if schema is not None:
            found["dagster/column_schema"] = metadata.column_schema(schema)
        rows = self._rows(table) if self._site.lake_path else None
        if rows is not None:
            found["dagster/row_count"] = rows
        return found

    def paused(self, table: TableId) -> metadata.Metadata:
        """Since when a table is paused, how many of its changes wait, and what to do; nothing where it is not."""
        if not self._site.lake_path:
            return {}
        from cdc_core.engine.status import paused_now
        from cdc_core.sink.delta.paths import LakePaths

        found = paused_now(LakePaths(self._site.lake_path, self._site.name), self._site.slot, table)
        if found is None:
            return {}
        since = dg.MetadataValue.timestamp(found.since)
        remedy = f"{found.remedy} Then: wal2lake replay CONFIG {table}"
        return {"paused_since": since, "waiting_changes": found.waiting, "remedy": remedy}

    def _rows(self, table: TableId) -> int | None:
        from cdc_core.sink.delta.paths import LakePaths
        from cdc_core.sink.delta.row_count import row_count

        return row_count(LakePaths(self._site.lake_path, self._site.name).lake(table))
