"""The stream as one step: the slot's drain into the changelog, and each captured table of the lake with its checks."""

# Dagster looks at the annotation of `context` itself, so annotations are not postponed in this file.

from collections.abc import Iterator
from typing import Any

import dagster as dg

from cdc_core.engine.reports import Until
from cdc_core.lsn import Lsn
from pipelines.assets.failure import RETRIES, reported
from pipelines.assets.source import table_metadata
from pipelines.assets.stream_events import StreamEvents
from pipelines.checks.tables import check_specs
from pipelines.keys import changes_key, lake_key, snapshot_key, source_key
from pipelines.lake_facts import LakeFacts
from pipelines.resources import spark_key
from pipelines.site import Site


class StreamConfig(dg.Config):
    """Where a run of the stream ends: whichever comes first. A run costs seconds to start, so let it drain a while."""

    max_seconds: float = 120.0
    idle_seconds: float = 5.0
    max_rows: int | None = None
    until_lsn: str | None = None
    data_docs: bool = True

    def until(self) -> Until:
        """The same as the engine takes it; a bound of 0 is none."""
        lsn = Lsn.parse(self.until_lsn) if self.until_lsn else None
        return Until(lsn, self.idle_seconds or None, self.max_seconds or None, self.max_rows or None)


def stream_assets(site: Site) -> dg.AssetsDefinition:
    """Changes and lake tables of a connector, made together: one process, one Spark session, one consumer."""
    tables = [table.id for table in site.tables]

    @dg.multi_asset(
        name=f"{site.safe_name}_stream",
        specs=[_changes_spec(site), *_lake_specs(site)],
        check_specs=[spec for table in tables for spec in check_specs(site, table)],
        can_subset=True,
        pool=site.pool,
        retry_policy=RETRIES,
        required_resource_keys={spark_key(site)},
    )
    def stream(context: dg.AssetExecutionContext, config: StreamConfig) -> Iterator[Any]:
        spark = getattr(context.resources, spark_key(site)).spark_session
        events = StreamEvents(context, site, LakeFacts(site, spark))
        with reported(), events.kept_on_error():
            report = site.open().stream(config.until(), spark=spark, on_batch=events.on_batch, on_round=events.on_round)
        yield from events.results(report, with_data_docs=config.data_docs)

    return stream


def _changes_spec(site: Site) -> dg.AssetSpec:
    return dg.AssetSpec(
        changes_key(site),
        deps=[source_key(site, table.id) for table in site.tables],
        group_name=site.safe_name,
        kinds={"postgres", "delta", "spark"},
        skippable=True,
        description=f"Drains the slot {site.slot} into one changelog table a captured table, each event once.",
    )


def _lake_specs(site: Site) -> list[dg.AssetSpec]:
    return [
        dg.AssetSpec(
            lake_key(site, table.id),
            deps=[changes_key(site), snapshot_key(site)],
            group_name=site.safe_name,
            kinds={"delta", "spark"},
            # A table without news in a run is not materialised by it.
            skippable=True,
            description=f"Table {table.id} of the source as a Delta table, merged from its changelog.",
            metadata=table_metadata(table),
        )
        for table in site.tables
    ]
