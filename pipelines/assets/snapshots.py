"""Snapshots as a partitioned asset: one partition per table; a backfill is one run with one exported snapshot."""

# Dagster inspects the annotation of `context` itself, so annotations are not postponed in this file.

import logging
from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg
from dagster._core.storage.tags import PARENT_RUN_ID_TAG, RETRY_NUMBER_TAG, ROOT_RUN_ID_TAG

from cdc_core.errors import CdcError
from cdc_core.schema import TableId
from cdc_core.snapshot import SnapshotReport
from wal2lake.pipelines.assets.partitioned import partitioned_asset
from wal2lake.pipelines.assets.snapshot_events import SnapshotEvents
from wal2lake.pipelines.connector.keys import snapshot_key
from wal2lake.pipelines.connector.partitions import table_partitions
from wal2lake.pipelines.connector.site import Site
from wal2lake.pipelines.reports.metadata import SNAPSHOT_HELP
from wal2lake.pipelines.step.background import BackgroundWork
from wal2lake.pipelines.step.failure import reported, retried
from wal2lake.pipelines.step.interrupts import held
from wal2lake.pipelines.step.log import listed, name_run
from wal2lake.pipelines.step.resources import spark_key

# A cancelled snapshot ends with its Spark tasks; the tables finished before are complete.
_STOP_SECONDS = 30.0
# Of a run or a backfill: the selected tables are read in any snapshot mode, also if they are in the lake.
READ_AGAIN_TAG = "wal2lake/read_again"
_MAX_REPORTS = 10_000
_DESCRIPTION = (
    "Copies captured tables into the lake at the slot's consistent point; one partition per table. snapshot.mode and "
    "snapshot.include.collection.list decide which are read: with initial, tables that are not in the lake; with "
    "always, all selected tables; with no_data, none. A table that is in the lake is reported as it is. The tag "
    f"{READ_AGAIN_TAG}: true of a run or backfill reads the selected tables in any case, and replaces their lake "
    "tables. Assets of tables that are captured later appear when the code location is loaded again: under `dagster "
    "dev` automatically, else by pressing *Reload definitions* (Deployment, Code locations)."
)

_log = logging.getLogger(__name__)


def snapshot_asset(site: Site) -> dg.AssetsDefinition:
    """The snapshot asset of a connector."""

    @partitioned_asset(site, snapshot_key(site), table_partitions(site), site.pool, _DESCRIPTION + SNAPSHOT_HELP)
    def snapshot(context: dg.AssetExecutionContext) -> Iterator[Any]:
        events = SnapshotEvents(context, site)
        done = finished_in(context, snapshot_key(site))
        table_ids = [site.table_id(key) for key in context.partition_keys if key not in done]
        tables = _captured(context, site, table_ids)
        name_run(context, f"snapshot of {listed(tables)}")
        sessions: list[Any] = []

        def take(should_stop: Callable[[], bool]) -> list[SnapshotReport]:
            # Not in the main thread, where PySpark would replace Dagster's handler of interrupts.
            sessions.append(getattr(context.resources, spark_key(site)).spark_session)
            engine = site.open()
            if context.run.tags.get(READ_AGAIN_TAG, "").lower() == "true":
                return engine.snapshot(tables, sessions[0], events.listen, events.notified)
            return engine.initial_snapshot(sessions[0], events.listen, events.notified, only=tables)

        def tick() -> None:
            with held():
                events.report_soon()

        work = BackgroundWork(take, f"The snapshot of {site.name}", on_stop=lambda: _cancel(sessions))
        with retried(context), reported():
            try:
                reports = work.run(tick, context.log, _STOP_SECONDS) if tables else []
                with held():
                    events.finish(reports)
                    read = {report.table for report in reports}
                    left = [table for table in tables if table not in read]
                    unread = events.report_unread(left, site.open().status()) if left else []
            finally:
                with held():
                    events.flush()
        context.log.info(f"{len(reports)} tables were read, {len(left) - len(unread)} were in the lake already.")
        if unread:
            context.log.warning(f"Not read, and not in the lake (see the log for the reason): {', '.join(unread)}.")
        yield from ()

    return snapshot


def finished_in(context: dg.AssetExecutionContext, asset: dg.AssetKey) -> set[str]:
    """Return the run's partitions that an earlier attempt has materialized: of its step, or a run that crashed."""
    runs = {context.run.run_id} if context.op_execution_context.retry_number else set()
    if RETRY_NUMBER_TAG in context.run.tags:
        runs |= {context.run.tags.get(PARENT_RUN_ID_TAG, ""), context.run.tags.get(ROOT_RUN_ID_TAG, "")}
    if not runs:
        return set()
    records_filter = dg.AssetRecordsFilter(asset_key=asset, asset_partitions=list(context.partition_keys))
    records = context.instance.fetch_materializations(records_filter, limit=_MAX_REPORTS).records
    return {record.partition_key for record in records if record.run_id in runs and record.partition_key}


def _captured(context: dg.AssetExecutionContext, site: Site, tables: list[TableId]) -> list[TableId]:
    """Return the tables that are captured now: partitions of others exist until the sensor deletes them.

    All of them if none is captured, or if the server does not answer: the snapshot then fails with the reason.
    """
    try:
        now = {table.id for table in site.open().tables()}
    except CdcError:
        return tables
    gone = [table for table in tables if table not in now]
    if not gone or len(gone) == len(tables):
        return tables
    names = ", ".join(map(str, gone))
    context.log.warning(
        f"Skipped, because they are no longer captured (dropped, renamed or excluded): {names}. Their lake tables are "
        f"unchanged; the sensor {site.safe_name}_tables deletes their partitions."
    )
    return [table for table in tables if table in now]


def _cancel(sessions: list[Any]) -> None:
    """Cancel the Spark tasks of a cancelled snapshot."""
    for session in sessions:
        try:
            session.sparkContext.cancelAllJobs()
        except Exception as error:
            _log.warning("Spark tasks could not be cancelled (%s); they end with the process.", type(error).__name__)
