"""Asset keys of a connector. Every key starts with the connector's name (``topic.prefix``), unless set otherwise."""

from __future__ import annotations

import dagster as dg

from cdc_core.lake import StreamTable
from cdc_core.schema import TableId
from wal2lake.pipelines.connector.key_parts import part
from wal2lake.pipelines.connector.site import Site


def source_key(site: Site, table: TableId) -> dg.AssetKey:
    """A source table. Lists show only the last part of a key, so it differs from the lake table's."""
    return dg.AssetKey([*prefix(site), "source", *site.key_parts(table, "_source")])


def snapshot_key(site: Site) -> dg.AssetKey:
    """The snapshot asset, with one partition per table."""
    return dg.AssetKey([*prefix(site), "snapshot"])


def incremental_key(site: Site) -> dg.AssetKey:
    """The asset of incremental snapshots, with one partition per range of a table's key."""
    return dg.AssetKey([*prefix(site), "incremental_snapshot"])


def changes_key(site: Site) -> dg.AssetKey:
    """The changelog tables."""
    return dg.AssetKey([*prefix(site), "changes"])


def own_key(site: Site, table: StreamTable) -> dg.AssetKey:
    """A table of the stream's own: logical messages, transaction metadata."""
    return dg.AssetKey([*prefix(site), table.value])


def lake_key(site: Site, table: TableId) -> dg.AssetKey:
    """A lake table."""
    return dg.AssetKey([*_lake_prefix(site), *site.key_parts(table)])


def maintenance_key(site: Site, table: TableId) -> dg.AssetKey:
    """The maintenance asset of a captured table's Delta tables."""
    return dg.AssetKey([*prefix(site), "maintenance", *site.key_parts(table, "_maintenance")])


def is_maintenance(site: Site, key: dg.AssetKey) -> bool:
    """Whether the key is that of a maintenance asset."""
    begin = [*prefix(site), "maintenance"]
    return list(key.path[: len(begin)]) == begin


def topic_key(site: Site, table: TableId) -> dg.AssetKey:
    """The events of a table in Kafka, for a connector without a lake."""
    return dg.AssetKey([*_topic_prefix(site), *site.key_parts(table)])


def uses_slot(site: Site, key: dg.AssetKey) -> bool:
    """Whether the asset is made by a run that uses the connector's slot: a lake table or topic, also if not known."""
    made = _topic_prefix(site) if site.is_kafka_only else _lake_prefix(site)
    return key in (snapshot_key(site), changes_key(site)) or (
        len(key.path) == len(made) + 2 and list(key.path[: len(made)]) == made
    )


def prefix(site: Site) -> list[str]:
    """How the connector's keys begin."""
    return list(site.key_prefix)


def _lake_prefix(site: Site) -> list[str]:
    return [part(name) for name in site.labels.lake_prefix] or [*prefix(site), "lake"]


def _topic_prefix(site: Site) -> list[str]:
    return [*prefix(site), "topic"]
