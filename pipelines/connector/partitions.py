"""The partitions of a connector's snapshot asset: its captured tables, added by a sensor that queries the server."""

from __future__ import annotations

import dagster as dg

from pipelines.connector.site import Site


def table_partitions(site: Site) -> dg.DynamicPartitionsDefinition:
    """One partition per captured table; its key is ``schema.table``."""
    return dg.DynamicPartitionsDefinition(name=partitions_name(site))


def partitions_name(site: Site) -> str:
    """The name of the partitions definition in the instance."""
    return f"{site.safe_name}_tables"
