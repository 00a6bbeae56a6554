"""Creates definitions from connector files. A file with an error is shown in the UI and does not affect the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import dagster as dg

from wal2lake.pipelines.assets.incremental import incremental_asset
from wal2lake.pipelines.assets.snapshots import snapshot_asset
from wal2lake.pipelines.assets.source import source_specs
from wal2lake.pipelines.assets.stream import own_specs, stream_assets
from wal2lake.pipelines.assets.topics import topic_assets
from wal2lake.pipelines.checks.changes import changes_check
from wal2lake.pipelines.checks.slot import slot_health_check
from wal2lake.pipelines.checks.source import reconcile_checks
from wal2lake.pipelines.checks.tables import table_checks
from wal2lake.pipelines.connector.files import BrokenConnector, connector_files, load_sites
from wal2lake.pipelines.connector.key_parts import part
from wal2lake.pipelines.connector.site import Site
from wal2lake.pipelines.jobs.connector import jobs
from wal2lake.pipelines.jobs.maintenance import maintenance_assets, maintenance_job, maintenance_schedule
from wal2lake.pipelines.jobs.pauses import pause_jobs
from wal2lake.pipelines.jobs.reconcile import reconcile_job, reconcile_schedule, repair_job
from wal2lake.pipelines.jobs.replays import replay_job
from wal2lake.pipelines.jobs.schedules import schedules
from wal2lake.pipelines.jobs.signals import signal_job
from wal2lake.pipelines.sensors.alerts import alert_sensors
from wal2lake.pipelines.sensors.connector import sensors
from wal2lake.pipelines.sensors.health import health_sensor
from wal2lake.pipelines.step.resources import spark_key, spark_resource


def build_definitions() -> dg.Definitions:
    """The definitions of all connector files."""
    sites, broken = load_sites(connector_files())
    return definitions_of(sites, broken)


def definitions_of(sites: Iterable[Site], broken: Iterable[BrokenConnector] = ()) -> dg.Definitions:
    """The definitions of the given connectors."""
    sites = list(sites)
    return dg.Definitions.merge(
        site_definitions(sites),
        dg.Definitions(
            assets=[_broken_spec(connector) for connector in broken],
            sensors=alert_sensors() if sites else [],
            executor=dg.in_process_executor,
        ),
    )


def site_definitions(sites: Sequence[Site]) -> dg.Definitions:
    """Only the definitions of connectors, to be merged with others in a code location with its own executor."""
    assets: list[dg.AssetsDefinition | dg.AssetSpec] = []
    for site in sites:
        if site.is_kafka_only:
            assets += [*source_specs(site), topic_assets(site)]
            continue
        assets += [
            *source_specs(site),
            snapshot_asset(site),
            incremental_asset(site),
            stream_assets(site),
            *own_specs(site),
        ]
        if (maintenance := maintenance_assets(site)) is not None:
            assets.append(maintenance)
    lakes = [site for site in sites if not site.is_kafka_only]
    kept = [site for site in lakes if site.tables]
    return dg.Definitions(
        assets=assets,
        asset_checks=[
            *[slot_health_check(site) for site in sites],
            *[changes_check(site) for site in lakes],
            *[checks for site in lakes if (checks := table_checks(site)) is not None],
            *[checks for site in lakes if (checks := reconcile_checks(site)) is not None],
        ],
        jobs=[
            *[job for site in sites for job in (*jobs(site), *pause_jobs(site), signal_job(site))],
            *[replay_job(site) for site in lakes],
            *[job for site in kept for job in (maintenance_job(site), reconcile_job(site), repair_job(site))],
        ],
        schedules=[
            *[schedule for site in sites for schedule in schedules(site)],
            *[schedule for site in kept for schedule in (maintenance_schedule(site), reconcile_schedule(site))],
        ],
        sensors=[
            *[sensor for site in sites for sensor in (*sensors(site), health_sensor(site))],
        ],
        resources={spark_key(site): spark_resource(site) for site in lakes},
    )


def _broken_spec(broken: BrokenConnector) -> dg.AssetSpec:
    return dg.AssetSpec(
        dg.AssetKey([part(broken.file.stem), "cannot_be_read"]),
        group_name="broken_connectors",
        kinds={"properties"},
        description=f"{broken.file.name}: {broken.error}",
        metadata={"error": broken.error, "file": str(broken.file)},
    )
