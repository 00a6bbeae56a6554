"""The schedule of incremental snapshots: a tick materializes the ranges of the configured tables.

A connector that writes only to Kafka has no ranges: a tick sends the signal, and its stream reads the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from cdc_core.schema import TableId
from cdc_core.selection import table_matcher
from wal2lake.pipelines.connector import pause
from wal2lake.pipelines.connector.keys import incremental_key
from wal2lake.pipelines.connector.partitions import keys_of_run, neighbours, ranges_name, table_of
from wal2lake.pipelines.connector.site import Site
from wal2lake.pipelines.jobs.connector import incremental_job_name
from wal2lake.pipelines.jobs.pauses import resume_job_name
from wal2lake.pipelines.jobs.scheduled import scheduled
from wal2lake.pipelines.jobs.signals import signal_job_name, snapshot_signal_config
from wal2lake.pipelines.jobs.slot_runs import unfinished

# Used, with the schedule stopped, if the connector file does not set one.
USUAL_CRON = "0 3 * * 0"
_OPTION = "wal2lake.snapshot.schedule"


def schedule_name(site: Site) -> str:
    """The schedule of the incremental snapshot."""
    return f"{site.safe_name}_incremental_snapshot_schedule"


def schedules(site: Site) -> list[dg.ScheduleDefinition]:
    """All schedules of a connector."""
    plan = site.snapshot_plan
    tables = ", ".join(plan.tables) or "all tables of snapshot.include.collection.list"
    common = {"execution_timezone": plan.timezone}
    if site.is_kafka_only:
        what = f"Requests an incremental snapshot of {tables} from the streaming run of {site.name}"
        config = snapshot_signal_config(site, plan.tables or _unnamed(site))
        made = _made(site, signal_job_name(site), what, run_config=config, **common)
    else:
        what = f"Takes an incremental snapshot of {tables}, except tables that are still being read"
        made = _made(site, incremental_job_name(site), what, execution_fn=_requests(site), **common)
    return [made]


def _made(site: Site, job_name: str, what: str, **more: Any) -> dg.ScheduleDefinition:
    return scheduled(schedule_name(site), job_name, site.snapshot_plan.cron, USUAL_CRON, _OPTION, what, **more)


def _requests(site: Site) -> Any:
    """The function of a tick: requests of runs, or why there are none."""

    def tick(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        if (paused := pause.read(site.state_path)) is not None:
            # Its run would stream, as no other does.
            yield dg.SkipReason(f"{site.name} is {paused}; run {resume_job_name(site)} to resume it")
            return
        order = context.instance.get_dynamic_partitions(ranges_name(site))
        ranges = _wanted(site, order)
        if not ranges:
            yield dg.SkipReason(
                f"no table of {', '.join(site.snapshot_plan.tables) or site.name} has ranges yet: the sensor "
                f"{site.safe_name}_tables adds them once the table is in the lake"
            )
            return
        busy = _being_read(context.instance, site, order)
        for table, run_id in busy.items():
            context.log.info(f"{table} is skipped: run {run_id} is still reading it.")
        free = {key for key, table in ranges.items() if table not in busy}
        if not free:
            reading = "; ".join(f"run {run_id} is still reading {table}" for table, run_id in busy.items())
            yield dg.SkipReason(f"{reading}: nothing else is to be read")
        yield from (_request(context, first, last) for first, last in neighbours(order, free))

    return tick


def _request(context: dg.ScheduleEvaluationContext, first: str, last: str) -> dg.RunRequest:
    at = context.scheduled_execution_time
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    return dg.RunRequest(run_key=f"{at.isoformat()}:{first}:{last}", tags=tags)


def _unnamed(site: Site) -> Sequence[str]:
    """The known tables that a snapshot without names reads; none if it reads all, also those captured later."""
    read = [str(table.id) for table in site.tables if site.reads(table.id)]
    return [] if len(read) == len(site.tables) else read


def _wanted(site: Site, order: Sequence[str]) -> dict[str, TableId]:
    """The ranges of the tables that the schedule names; without names, as any snapshot without names."""
    patterns = [table_matcher(entry) for entry in site.snapshot_plan.tables] or [site.reads]
    tables = {key: table_of(key) for key in order}
    return {key: table for key, table in tables.items() if any(names(table) for names in patterns)}


def _being_read(instance: dg.DagsterInstance, site: Site, order: Sequence[str]) -> dict[TableId, str]:
    """The tables of which a run that has not ended reads ranges, each with that run."""
    mine = incremental_key(site)
    runs = [
        run
        for run in unfinished(instance)
        if run.job_name == incremental_job_name(site) or mine in (run.asset_selection or ())
    ]
    return {table_of(key): run.run_id for run in runs for key in keys_of_run(run, order)}
