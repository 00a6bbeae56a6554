"""Comparing lake tables with their source: a job and a schedule for all of them, and a job that repairs rows."""

# Dagster inspects the annotation of `context` itself, so annotations are not postponed in this file.

from typing import Any

import dagster as dg
from pydantic import Field

from wal2lake.pipelines.checks.evaluation import evaluation
from wal2lake.pipelines.checks.source import EQUAL, reconcile_keys, result_of
from wal2lake.pipelines.connector.keys import lake_key
from wal2lake.pipelines.connector.site import Site
from wal2lake.pipelines.jobs.scheduled import scheduled
from wal2lake.pipelines.jobs.signals import matched_tables
from wal2lake.pipelines.step.failure import reported

# Used, with the schedule stopped, if the connector file does not set one.
USUAL_CRON = "41 3 * * 6"


class RepairConfig(dg.Config):
    """Which tables are repaired."""

    tables: list[str] = Field(
        default=[],
        description="Captured tables (schema.table), or regular expressions that match such names. Empty: all.",
    )
    write: bool = Field(
        default=False,
        description="Read the rows that differ again and write them. Without it the run only lists what it would do.",
    )


def reconcile_job_name(site: Site) -> str:
    """The name of the job that compares all tables."""
    return f"{site.safe_name}_reconcile_job"


def repair_job_name(site: Site) -> str:
    """The name of the job that repairs rows."""
    return f"{site.safe_name}_repair_job"


def reconcile_job(site: Site) -> "dg.UnresolvedAssetJobDefinition":
    """The job that compares all tables. It does not use the slot's pool: it runs while the stream does."""
    return dg.define_asset_job(
        reconcile_job_name(site),
        selection=dg.AssetSelection.checks(*reconcile_keys(site).values()),
        executor_def=dg.in_process_executor,
        description="Compares every lake table with its source, row by row; can run concurrently with the stream.",
    )


def reconcile_schedule(site: Site) -> dg.ScheduleDefinition:
    """The schedule of that job."""
    return scheduled(
        f"{site.safe_name}_reconcile_schedule",
        reconcile_job_name(site),
        site.reconcile_cron,
        USUAL_CRON,
        "wal2lake.reconcile.schedule",
        f"Compares the lake tables of {site.name} with their source",
    )


def repair_job(site: Site) -> dg.JobDefinition:
    """The job that compares tables and repairs the rows that differ."""

    @dg.op(
        name=f"{site.safe_name}_repair",
        description="Compares tables with their source; with write=true the rows that differ are written again.",
    )
    def repair(context: dg.OpExecutionContext, config: RepairConfig) -> None:
        with reported():
            engine = site.open()
            tables = matched_tables(engine, config.tables) if config.tables else None
            report = engine.reconcile(tables, repair=config.write)
        known, remaining = {table.id for table in site.tables}, 0
        for result in report.tables:
            plain, made = result.to_plain(), result_of(site, result, str(report.lsn))
            differs = sum(plain["counts"][name] for name in ("missing", "extra", "changed"))
            remaining += differs
            context.log.info(
                f"{result.table}: {plain['state']}, {plain['repaired']:,} rows repaired, {differs:,} differ"
            )
            for row in plain["unrepaired"]:
                context.log.warning(f"{result.table}: {', '.join(map(str, row['key']))} not repaired: {row['reason']}")
            if result.table in known:
                key = dg.AssetCheckKey(lake_key(site, result.table), EQUAL)
                event: Any = evaluation(made, key, blocking=False)
                context.log_event(event)
        if remaining and not config.write:
            context.log.info(f"{remaining:,} rows would be read again and written: run with write=true.")
        elif remaining:
            raise dg.Failure(f"{remaining:,} rows still differ; the log has the reasons.", allow_retries=False)

    @dg.job(
        name=repair_job_name(site),
        description="Compares tables with their source and, with write=true, repairs the rows that differ.",
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        repair()

    return job
