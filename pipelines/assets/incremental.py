"""Incremental snapshots as a partitioned asset: a partition is a range of a table's key, a run is a PySpark job."""

# Dagster inspects the annotation of `context` itself, so annotations are not postponed in this file.

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dagster as dg

from cdc_core.snapshot import KeyRange, RangeReport
from wal2lake.pipelines.assets.incremental_events import IncrementalEvents
from wal2lake.pipelines.assets.partitioned import partitioned_asset
from wal2lake.pipelines.assets.snapshots import READ_AGAIN_TAG, finished_in
from wal2lake.pipelines.connector.keys import incremental_key
from wal2lake.pipelines.connector.partitions import range_partitions, table_of
from wal2lake.pipelines.connector.site import Site
from wal2lake.pipelines.reports.metadata import RANGE_HELP
from wal2lake.pipelines.step.background import BackgroundWork
from wal2lake.pipelines.step.failure import reported, retried
from wal2lake.pipelines.step.interrupts import held
from wal2lake.pipelines.step.log import listed, name_run
from wal2lake.pipelines.step.resources import spark_key

_BACKFILL_TAG = "dagster/backfill"
# The ranges being read are read to their end: a chunk is one statement, a range some seconds.
_STOP_SECONDS = 120.0
_DESCRIPTION = (
    "Reads captured tables again while the stream continues; one partition per range of a table's key, named "
    "schema.table|NUMBER. The tasks of a run read its ranges in parallel and stage them in the lake; the run that "
    "streams applies each as soon as the lake table has passed the range's position, and without one this run streams "
    "up to its own end. A range is materialized when it is in the lake; one that failed is read again separately. A "
    "backfill of all assets leaves tables as they are; the tag "
    f"{READ_AGAIN_TAG}: true reads them in any case. Tables without a key and history tables have no ranges."
)


def incremental_asset(site: Site) -> dg.AssetsDefinition:
    """The asset of a connector's incremental snapshots."""

    # Not the slot's pool: it runs while the stream does.
    @partitioned_asset(site, incremental_key(site), range_partitions(site), site.ranges_pool, _DESCRIPTION + RANGE_HELP)
    def incremental_snapshot(context: dg.AssetExecutionContext) -> Iterator[Any]:
        events = IncrementalEvents(context, site)
        if _is_of_all_assets(context, site):
            context.log.info(
                "Nothing is read: the backfill materializes other assets, too. A backfill of this asset alone, or one "
                f"with the tag {READ_AGAIN_TAG}: true, reads its ranges."
            )
            events.report_unread(list(context.partition_keys))
            return
        done = finished_in(context, incremental_key(site))
        keys = [key for key in context.partition_keys if key not in done]
        name_run(context, f"incremental snapshot of {listed(map(table_of, keys))}: {len(keys)} ranges")
        with retried(context), reported():
            reports = _read(context, site, keys, events)
            if reports:
                tables = {report.range.table for report in reports if report.is_applied}
                events.report_tables(tables, site.open().status())
        staged = [report for report in reports if not report.is_applied]
        if staged:
            raise dg.Failure(
                f"{len(staged)} of {len(reports)} ranges are not in the lake yet: "
                + "; ".join(f"{report.range.name}: {report.reason}" for report in staged[:10]),
                allow_retries=False,
            )
        context.log.info(f"{sum(report.rows for report in reports):,} rows of {len(reports)} ranges are in the lake.")
        yield from ()

    return incremental_snapshot


def _read(
    context: dg.AssetExecutionContext, site: Site, keys: Sequence[str], events: IncrementalEvents
) -> Sequence[RangeReport]:
    ranges = _planned(context, site, keys)

    def take(should_stop: Callable[[], bool]) -> Sequence[RangeReport]:
        return site.open().incremental_snapshot(
            ranges,
            # Not in the main thread, where PySpark would replace Dagster's handler of interrupts.
            spark=lambda: getattr(context.resources, spark_key(site)).spark_session,
            on_progress=events.listen,
            should_stop=should_stop,
            on_range=events.applied,
        )

    def tick() -> None:
        with held():
            events.report_soon()

    try:
        return BackgroundWork(take, f"The incremental snapshot of {site.name}").run(tick, context.log, _STOP_SECONDS)
    finally:
        with held():
            events.report_due()


def _planned(context: dg.AssetExecutionContext, site: Site, keys: Sequence[str]) -> list[KeyRange]:
    """Return the ranges of the partitions. Those that the tables' plans no longer have are left out with a warning."""
    tables = list(dict.fromkeys(table_of(key) for key in keys))
    known = {key_range.name: key_range for key_range in site.open().plan_incremental(tables)}
    gone = [key for key in keys if key not in known]
    if gone and len(gone) == len(keys):
        raise dg.Failure(
            f"No such range: {', '.join(gone[:10])}. The table's key was divided again; the sensor "
            f"{site.safe_name}_tables replaces its partitions.",
            allow_retries=False,
        )
    if gone:
        context.log.warning(f"Skipped, because the table's key was divided again: {', '.join(gone[:10])}.")
    return [known[key] for key in keys if key in known]


def _is_of_all_assets(context: dg.AssetExecutionContext, site: Site) -> bool:
    """Whether the run is part of a backfill of other assets, too, such as *Materialize all*, without the tag."""
    if context.run.tags.get(READ_AGAIN_TAG) == "true" or _BACKFILL_TAG not in context.run.tags:
        return False
    backfill = context.instance.get_backfill(context.run.tags[_BACKFILL_TAG])
    selected = backfill.asset_selection if backfill is not None else None
    return selected is not None and set(selected) != {incremental_key(site)}
