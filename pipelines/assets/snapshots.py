"""Snapshots as one partitioned asset: a partition a table, a backfill one run with one exported snapshot."""

# Dagster looks at the annotation of `context` itself, so annotations are not postponed in this file.

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg

from cdc_core.engine.reports import SnapshotProgress
from pipelines import metadata
from pipelines.assets.failure import reported, retried
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
        required_resource_keys={spark_key(site)},
        description="Copies captured tables into the lake at the slot's consistent point; one partition a table.",
    )
    def snapshot(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        tables = [site.table_id(key) for key in context.partition_keys]
        spark = getattr(context.resources, spark_key(site)).spark_session
        progress = SnapshotLog(context, site)
        with retried(context), reported(), progress.kept_on_error():
            reports = site.open().snapshot(tables, spark=spark, on_progress=progress.listen)
        for report in reports:
            context.add_asset_metadata(metadata.snapshot(report), partition_key=str(report.table))
        return dg.MaterializeResult(metadata={"tables": len(reports)})

    return snapshot


class SnapshotLog:
    """Logs each table's end, and how far the others are every few seconds.

    Tables are read side by side, but the engine calls one listener at a time.
    """

    def __init__(self, context: dg.AssetExecutionContext, site: Site) -> None:
        self._context = context
        self._site = site
        self._said: dict[str, float] = {}
        self._done: dict[str, int] = {}

    def listen(self, progress: SnapshotProgress) -> None:
        """What the engine calls."""
        name, now = str(progress.table), time.monotonic()
        if progress.done:
            self._done[name] = progress.rows
            self._context.log.info(f"{name}: {progress.rows:,} rows, done")
        elif now - self._said.get(name, 0.0) >= _LOG_SECONDS:
            self._said[name] = now
            estimated = f" of about {progress.rows_estimated:,}" if progress.rows_estimated else ""
            self._context.log.info(f"{name}: {progress.rows:,} rows{estimated}")

    @contextmanager
    def kept_on_error(self) -> Iterator[None]:
        """Record the partitions that were whole before an error, so that only the others are run again."""
        try:
            yield
        except BaseException:
            for name, rows in self._done.items():
                self._context.log_event(
                    dg.AssetMaterialization(
                        asset_key=snapshot_key(self._site),
                        partition=name,
                        metadata={"rows": rows, "dagster/row_count": rows},
                    )
                )
            raise
