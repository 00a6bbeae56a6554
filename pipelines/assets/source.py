"""The source's tables as external assets."""

from __future__ import annotations

import dagster as dg

from wal2lake.pipelines.connector.keys import source_key
from wal2lake.pipelines.connector.site import KnownTable, Site
from wal2lake.pipelines.reports import metadata
from wal2lake.pipelines.reports.columns import source_columns


def source_specs(site: Site) -> list[dg.AssetSpec]:
    """One external asset per captured table."""
    return [
        dg.AssetSpec(
            source_key(site, table.id),
            group_name=site.group("source"),
            kinds={"postgres", "table"},
            owners=site.owners,
            tags=site.tags,
            description=_description(site, table),
            metadata=_metadata(table),
        )
        for table in site.tables
    ]


def _description(site: Site, table: KnownTable) -> str:
    """Return the table's comment, if it has one, and a description."""
    comment = (table.schema.comment or "").strip() if table.schema is not None else ""
    told = f"Table {table.id} of the PostgreSQL database captured by {site.name}."
    return f"{comment}\n\n{told}" if comment else told


def _metadata(table: KnownTable) -> metadata.Metadata:
    """Key and columns, as far as they are known without querying the server."""
    facts = named(table)
    if table.schema is not None:
        facts["dagster/column_schema"] = source_columns(table.schema)
    return facts


def named(table: KnownTable) -> metadata.Metadata:
    """The table's name as it is in the source, and its key."""
    facts: metadata.Metadata = {"table": str(table.id)}
    if table.schema is not None:
        facts["key"] = ", ".join(table.schema.lake_key) or "none: the table has no key"
    return facts
