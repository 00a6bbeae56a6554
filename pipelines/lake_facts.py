"""What is only known once a run has written: a lake table's columns and its number of rows."""

from __future__ import annotations

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

    def _rows(self, table: TableId) -> int | None:
        from cdc_core.sink.delta.paths import LakePaths
        from cdc_core.sink.delta.row_count import row_count

        return row_count(LakePaths(self._site.lake_path, self._site.name).lake(table))
