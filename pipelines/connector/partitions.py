"""The partitions of a connector's snapshots: tables, and ranges of their keys; a sensor adds and deletes them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import dagster as dg
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
)

from cdc_core.schema import TableId
from cdc_core.snapshot import KeyRange
from wal2lake.pipelines.connector.site import Site


def table_partitions(site: Site) -> dg.DynamicPartitionsDefinition:
    """One partition per captured table; its key is ``schema.table``."""
    return dg.DynamicPartitionsDefinition(name=partitions_name(site))


def partitions_name(site: Site) -> str:
    """The name of the tables' partitions definition in the instance."""
    return f"{site.unique_name}_tables"


def range_partitions(site: Site) -> dg.DynamicPartitionsDefinition:
    """One partition per range of a captured table's key; its key is that of ``KeyRange.name``."""
    return dg.DynamicPartitionsDefinition(name=ranges_name(site))


def ranges_name(site: Site) -> str:
    """The name of the ranges' partitions definition in the instance."""
    return f"{site.unique_name}_ranges"


def table_of(range_key: str) -> TableId:
    """The table of a range's partition key. Raises ValueError for a key that is none."""
    return KeyRange.parse(range_key)[0]


def neighbours(order: Sequence[str], keys: Collection[str]) -> Iterator[tuple[str, str]]:
    """The first and the last key of each group of wanted keys that follow each other in ``order``.

    Dagster runs a group in one run: a run has a partition, or all partitions from one to another.
    """
    group: list[str] = []
    for key in order:
        if key in keys:
            group.append(key)
        elif group:
            yield group[0], group[-1]
            group = []
    if group:
        yield group[0], group[-1]


def keys_of_run(run: dg.DagsterRun, order: Sequence[str]) -> list[str]:
    """The partition keys that a run materializes, of those in ``order``."""
    first = run.tags.get(ASSET_PARTITION_RANGE_START_TAG, run.tags.get(PARTITION_NAME_TAG, ""))
    last = run.tags.get(ASSET_PARTITION_RANGE_END_TAG, first)
    if first not in order or last not in order:
        return [key for key in {first, last} if key]
    return list(order[order.index(first) : order.index(last) + 1])
