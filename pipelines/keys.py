"""The names of a connector's assets. Every key starts with the connector's name (``topic.prefix``)."""

from __future__ import annotations

import re

import dagster as dg

from cdc_core.schema.table import TableId
from pipelines.site import Site


def source_key(site: Site, table: TableId) -> dg.AssetKey:
    """A table of the source database."""
    return dg.AssetKey([part(site.name), "source", part(table.schema), part(table.table)])


def snapshot_key(site: Site) -> dg.AssetKey:
    """The snapshots, one partition a table."""
    return dg.AssetKey([part(site.name), "snapshot"])


def changes_key(site: Site) -> dg.AssetKey:
    """The drain of the slot into the changelog tables."""
    return dg.AssetKey([part(site.name), "changes"])


def lake_key(site: Site, table: TableId) -> dg.AssetKey:
    """A table of the lake."""
    return dg.AssetKey([part(site.name), "lake", part(table.schema), part(table.table)])


def part(name: str) -> str:
    """A name as part of an asset key: itself where Dagster allows it, else with other characters as ``_hex_``.

    Two names never become one, unless somebody names a table after the escape of another.
    """
    return re.sub(r"[^A-Za-z0-9_]", lambda found: f"_{ord(found[0]):x}_", name)
