"""The jobs of a connector: stream, snapshots, slot health. Each runs in one process, with one JVM at most."""

from __future__ import annotations

import dagster as dg

from wal2lake.pipelines.checks.slot import check_keys
from wal2lake.pipelines.connector.keys import changes_key, incremental_key, snapshot_key
from wal2lake.pipelines.connector.site import Site

SLOT_TAG = "wal2lake/slot"
# The effect of cancelling, in the job's description and in the log of a cancelled run.
CANCELLED = (
    "Cancelling a run ends that run only, after its current round: the sensor {0}_slot starts another one as soon as "
    "there are changes. To stop streaming, run {0}_pause_job; {0}_resume_job resumes it."
)


def stream_job_name(site: Site) -> str:
    """The name of the streaming job."""
    return f"{site.safe_name}_stream_job"


def snapshot_job_name(site: Site) -> str:
    """The name of the snapshot job."""
    return f"{site.safe_name}_snapshot_job"


def incremental_job_name(site: Site) -> str:
    """The name of the job of incremental snapshots."""
    return f"{site.safe_name}_incremental_snapshot_job"


def jobs(site: Site) -> list[dg.UnresolvedAssetJobDefinition]:
    """All jobs of a connector."""
    tags = {SLOT_TAG: site.pool}
    where = "Kafka, after the initial snapshot," if site.is_kafka_only else "the changelog and lake tables"
    snapshot = dg.define_asset_job(
        snapshot_job_name(site),
        selection=dg.AssetSelection.assets(snapshot_key(site)),
        tags=tags,
        executor_def=dg.in_process_executor,
        description="Reads the tables that snapshot.mode requires, of those selected, into the lake at one consistent "
        "point; the stream waits.",
    )
    incremental = dg.define_asset_job(
        incremental_job_name(site),
        selection=dg.AssetSelection.assets(incremental_key(site)),
        executor_def=dg.in_process_executor,
        description="Reads the selected ranges of tables again while the stream continues.",
    )
    return [
        dg.define_asset_job(
            stream_job_name(site),
            # The stream reports lake tables and checks itself, as it goes. Dagster shows an asset that a run selects
            # as *Materializing* until the run reports it: a table without changes, for as long as the stream runs.
            selection=dg.AssetSelection.assets(changes_key(site)).without_checks(),
            tags=tags,
            executor_def=dg.in_process_executor,
            description=f"Streams changes from the replication slot {site.slot} to {where} "
            f"until the slot is idle or a limit is reached. {CANCELLED.format(site.safe_name)}",
        ),
        *([] if site.is_kafka_only else [snapshot, incremental]),
        dg.define_asset_job(
            f"{site.safe_name}_slot_health_job",
            selection=dg.AssetSelection.checks(*check_keys(site)),
            executor_def=dg.in_process_executor,
            description=f"Checks the replication slot {site.slot}: lag, retained WAL, activity.",
        ),
    ]
