"""Connector files → definitions. One broken file is shown as such and does not take the others down."""

from __future__ import annotations

from collections.abc import Iterable

import dagster as dg

from pipelines.assets.snapshots import snapshot_asset
from pipelines.assets.source import source_specs
from pipelines.assets.stream import stream_assets
from pipelines.checks.slot import slot_health_check
from pipelines.connectors import BrokenConnector, connector_files, load_sites
from pipelines.jobs import jobs
from pipelines.keys import part
from pipelines.resources import spark_key, spark_resource
from pipelines.sensors import sensors
from pipelines.site import Site


def build_definitions() -> dg.Definitions:
    """The definitions of every connector file there is."""
    sites, broken = load_sites(connector_files())
    return definitions_of(sites, broken)


def definitions_of(sites: Iterable[Site], broken: Iterable[BrokenConnector] = ()) -> dg.Definitions:
    """The definitions of connectors already read."""
    sites = list(sites)
    assets: list[dg.AssetsDefinition | dg.AssetSpec] = [_broken_spec(one) for one in broken]
    for site in sites:
        assets += [*source_specs(site), snapshot_asset(site), stream_assets(site)]
    return dg.Definitions(
        assets=assets,
        asset_checks=[slot_health_check(site) for site in sites],
        jobs=[job for site in sites for job in jobs(site)],
        sensors=[sensor for site in sites for sensor in sensors(site)],
        resources={spark_key(site): spark_resource(site) for site in sites},
        executor=dg.in_process_executor,
    )


def _broken_spec(broken: BrokenConnector) -> dg.AssetSpec:
    return dg.AssetSpec(
        dg.AssetKey([part(broken.file.stem), "cannot_be_read"]),
        group_name="broken_connectors",
        kinds={"properties"},
        description=f"{broken.file.name}: {broken.error}",
        metadata={"error": broken.error, "file": str(broken.file)},
    )
