"""Snapshots as one partitioned asset: a partition a table, a backfill one run with one exported snapshot."""

# Dagster looks at the annotation of `context` itself, so annotations are not postponed in this file.

import time
import warnings
from collections.abc import Callable
from typing import Any

import dagster as dg

from cdc_core.engine.reports import SnapshotProgress
from pipelines import metadata
from pipelines.assets.failure import RETRIES, reported
from pipelines.keys import snapshot_key, source_key
from pipelines.partitions import table_partitions
from pipelines.resources import spark_key
from pipelines.site import Site

_LOG_SECONDS = 5.0


def snapshot_asset(site: Site) -> dg.AssetsDefinition:
    """The snapshots of a connector's tables."""

    # The parameter backfill_policy is marked beta; said once here, it need not be said at every load.
    warnings.filterwarnings("ignore", message=".*backfill_policy.*", category=dg.BetaWarning)

    @dg.asset(
        key=snapshot_key(site),
        deps=[source_key(site, table.id) for table in site.tables],
        partitions_def=table_partitions(site),
        # All tables of a backfill in one run: one exported snapshot shows them at one point, in one Spark session.
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=site.safe_name,
        kinds={"postgres", "delta", "spark"},
        pool=site.pool,
        retry_policy=RETRIES,
        required_resource_keys={spark_key(site)},
        description="Copies captured tables into the lake at the slot's consistent point; one partition a table.",
    )
    def snapshot(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        tables = [site.table_id(key) for key in context.partition_keys]
        with reported():
            reports = site.open().snapshot(tables, spark=_spark(context, site), on_progress=progress_log(context))
        for report in reports:
            context.add_asset_metadata(metadata.snapshot(report), partition_key=str(report.table))
        return dg.MaterializeResult(metadata={"tables": len(reports)})

    return snapshot


def progress_log(context: dg.AssetExecutionContext) -> Callable[[SnapshotProgress], None]:
    """A listener that logs each table's end, and how far the others are every few seconds."""
    said: dict[str, float] = {}

    def listen(progress: SnapshotProgress) -> None:
        name, now = str(progress.table), time.monotonic()
        if not progress.done and now - said.get(name, 0.0) < _LOG_SECONDS:
            return
        said[name] = now
        estimated = f" of about {progress.rows_estimated:,}" if progress.rows_estimated and not progress.done else ""
        context.log.info(f"{name}: {progress.rows:,} rows{estimated}{', done' if progress.done else ''}")

    return listen


def _spark(context: dg.AssetExecutionContext, site: Site) -> Any:
    return getattr(context.resources, spark_key(site)).spark_session
