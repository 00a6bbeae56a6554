"""The source's tables, as assets that somebody else writes."""

from __future__ import annotations

import dagster as dg

from pipelines import metadata
from pipelines.keys import source_key
from pipelines.site import KnownTable, Site


def source_specs(site: Site) -> list[dg.AssetSpec]:
    """One external asset a captured table."""
    return [
        dg.AssetSpec(
            source_key(site, table.id),
            group_name=site.safe_name,
            kinds={"postgres", "table"},
            description=f"Table {table.id} of the source of {site.name}.",
            metadata=table_metadata(table),
        )
        for table in site.tables
    ]


def table_metadata(table: KnownTable) -> metadata.Metadata:
    """Name, key and columns, as far as they are known before the server was asked."""
    found: metadata.Metadata = {"table": str(table.id)}
    if table.schema is not None:
        found["dagster/column_schema"] = metadata.column_schema(table.schema)
        found["key"] = ", ".join(table.schema.lake_key) or "none: changes are appended"
    return found
