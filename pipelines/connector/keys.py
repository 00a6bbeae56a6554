"""Asset keys of a connector. Every key starts with the connector's name (``topic.prefix``)."""

from __future__ import annotations

import re

import dagster as dg

from cdc_core.schema.table import TableId
from pipelines.connector.site import Site


def source_key(site: Site, table: TableId) -> dg.AssetKey:
    """A source table. Lists show only the last part of a key, so it differs from the lake table's."""
    return dg.AssetKey([part(site.name), "source", part(table.schema), part(f"{table.table}_source")])


def snapshot_key(site: Site) -> dg.AssetKey:
    """The snapshot asset, with one partition per table."""
    return dg.AssetKey([part(site.name), "snapshot"])


def changes_key(site: Site) -> dg.AssetKey:
    """The changelog tables."""
    return dg.AssetKey([part(site.name), "changes"])


def lake_key(site: Site, table: TableId) -> dg.AssetKey:
    """A lake table."""
    return dg.AssetKey([part(site.name), "lake", part(table.schema), part(table.table)])


def part(name: str) -> str:
    """Return a name as part of an asset key: unchanged if Dagster allows it, else with other characters as ``_hex_``.

    Different names remain different, unless a table's name is equal to the escaped name of another.
    """
    return re.sub(r"[^A-Za-z0-9_]", lambda found: f"_{ord(found[0]):x}_", name)
