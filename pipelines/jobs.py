"""The jobs of a connector: stream, snapshot, slot health. Each runs in one process, so in one JVM at most."""

from __future__ import annotations

import dagster as dg

from pipelines.checks.slot import SLOT_HEALTH
from pipelines.keys import changes_key, lake_key, snapshot_key
from pipelines.site import Site

SLOT_TAG = "wal2lake/slot"


def stream_job_name(site: Site) -> str:
    """The job that drains the slot."""
    return f"{site.safe_name}_stream_job"


def snapshot_job_name(site: Site) -> str:
    """The job that takes snapshots."""
    return f"{site.safe_name}_snapshot_job"


def jobs(site: Site) -> list[dg.UnresolvedAssetJobDefinition]:
    """All jobs of a connector."""
    streamed = [changes_key(site), *(lake_key(site, table.id) for table in site.tables)]
    tags = {SLOT_TAG: site.slot}
    return [
        dg.define_asset_job(
            stream_job_name(site),
            selection=dg.AssetSelection.assets(*streamed),
            tags=tags,
            executor_def=dg.in_process_executor,
            description=f"Drains the slot {site.slot} into changelog and lake until it is idle or a bound is met.",
        ),
        dg.define_asset_job(
            snapshot_job_name(site),
            selection=dg.AssetSelection.assets(snapshot_key(site)),
            tags=tags,
            executor_def=dg.in_process_executor,
            description="Takes the snapshot of the chosen tables.",
        ),
        dg.define_asset_job(
            f"{site.safe_name}_slot_health_job",
            selection=dg.AssetSelection.checks(dg.AssetCheckKey(changes_key(site), SLOT_HEALTH)),
            executor_def=dg.in_process_executor,
            description=f"Looks at the slot {site.slot}: lag, WAL still kept, somebody reading.",
        ),
    ]
