"""Asset keys of a connector. Every key starts with the connector's name (``topic.prefix``), unless set otherwise."""

from __future__ import annotations

import re
import unicodedata
import zlib

import dagster as dg

from cdc_core.schema.table import TableId
from pipelines.connector.site import Site


def source_key(site: Site, table: TableId) -> dg.AssetKey:
    """A source table. Lists show only the last part of a key, so it differs from the lake table's."""
    return dg.AssetKey([*prefix(site), "source", part(table.schema), part(table.table, "_source")])


def snapshot_key(site: Site) -> dg.AssetKey:
    """The snapshot asset, with one partition per table."""
    return dg.AssetKey([*prefix(site), "snapshot"])


def changes_key(site: Site) -> dg.AssetKey:
    """The changelog tables."""
    return dg.AssetKey([*prefix(site), "changes"])


def lake_key(site: Site, table: TableId) -> dg.AssetKey:
    """A lake table."""
    return dg.AssetKey([*_lake_prefix(site), part(table.schema), part(table.table)])


def maintenance_key(site: Site, table: TableId) -> dg.AssetKey:
    """The maintenance asset of a captured table's Delta tables."""
    return dg.AssetKey([*prefix(site), "maintenance", part(table.schema), part(table.table, "_maintenance")])


def topic_key(site: Site, table: TableId) -> dg.AssetKey:
    """The events of a table in Kafka, for a connector without a lake."""
    return dg.AssetKey([*_topic_prefix(site), part(table.schema), part(table.table)])


def uses_slot(site: Site, key: dg.AssetKey) -> bool:
    """Whether the asset is made by a run that uses the connector's slot: a lake table or topic, also if not known."""
    made = _topic_prefix(site) if site.is_kafka_only else _lake_prefix(site)
    return key in (snapshot_key(site), changes_key(site)) or (
        len(key.path) == len(made) + 2 and list(key.path[: len(made)]) == made
    )


def prefix(site: Site) -> list[str]:
    """How the connector's keys begin."""
    return [part(one) for one in site.labels.prefix] or [part(site.name)]


def _lake_prefix(site: Site) -> list[str]:
    return [part(one) for one in site.labels.lake_prefix] or [*prefix(site), "lake"]


def _topic_prefix(site: Site) -> list[str]:
    return [*prefix(site), "topic"]


def part(name: str, suffix: str = "") -> str:
    """Return a name, with ``suffix``, as part of an asset key.

    It is unchanged if Dagster allows it: letters without accents, digits, underscores. In other names accents are left
    out and other characters are underscores, and a number that depends on the name is appended, so that different
    names remain different: ``täb-le.x`` is ``tab_le_x_1f3a``.
    """
    if re.fullmatch(r"[A-Za-z0-9_]+", name):
        return name + suffix
    bare = "".join(each for each in unicodedata.normalize("NFKD", name) if not unicodedata.combining(each))
    readable = re.sub(r"[^A-Za-z0-9]+", "_", bare).strip("_")
    return f"{readable}_{zlib.crc32(name.encode()) & 0xFFFF:04x}{suffix}"
