"""OPTIMIZE and VACUUM: one asset per captured table, and a job and schedule for all of them."""

# Dagster inspects the annotation of `context` itself, so annotations are not postponed in this file.

from collections.abc import Iterator
from typing import Any

import dagster as dg

from wal2lake.pipelines.connector.keys import lake_key, maintenance_key
from wal2lake.pipelines.connector.site import MaintainedTable, Site
from wal2lake.pipelines.jobs.scheduled import scheduled
from wal2lake.pipelines.step.failure import reported, retried
from wal2lake.pipelines.step.resources import spark_key

# Used, with the schedule stopped, if the connector file does not set one.
USUAL_CRON = "17 2 * * *"


def maintenance_job_name(site: Site) -> str:
    """The name of the maintenance job."""
    return f"{site.safe_name}_maintenance_job"


def maintenance_assets(site: Site) -> dg.AssetsDefinition | None:
    """Maintenance of each captured table's lake, changelog and quarantine tables; None if no table is known yet.

    Not in the slot's pool: concurrent rounds and maintenance are coordinated by Delta's conflict detection.
    """
    by_key = {maintenance_key(site, table.id): table.id for table in site.tables}
    if not by_key:
        return None

    @dg.multi_asset(
        name=f"{site.safe_name}_maintenance",
        specs=[
            dg.AssetSpec(
                key,
                deps=[lake_key(site, table)],
                group_name=site.group("maintenance"),
                kinds={"delta"},
                owners=site.owners,
                tags=site.tags,
                skippable=True,
                description=f"Maintenance of the Delta tables of {table}: compaction of small files (OPTIMIZE), "
                "removal of old files (VACUUM).",
            )
            for key, table in by_key.items()
        ],
        can_subset=True,
        required_resource_keys={spark_key(site)},
    )
    def maintenance(context: dg.AssetExecutionContext) -> Iterator[Any]:
        engine = site.open()
        tables = [by_key[key] for key in sorted(context.selected_asset_keys)]
        is_all = len(tables) == len(by_key)
        with retried(context), reported():
            reports = engine.maintain(
                # If all tables are maintained, a known table that is not in the lake yet is not an error.
                None if is_all else tables,
                lambda: getattr(context.resources, spark_key(site)).spark_session,
                lambda report: context.log.info(_line(report)),
            )
        for key, table in by_key.items():
            mine = [report for report in reports if report.table == table]
            if mine and key in context.selected_asset_keys:
                yield dg.MaterializeResult(asset_key=key, metadata=facts(mine))

    return maintenance


def maintenance_job(site: Site) -> "dg.UnresolvedAssetJobDefinition":
    """The maintenance job for all tables."""
    keys = [maintenance_key(site, table.id) for table in site.tables]
    return dg.define_asset_job(
        maintenance_job_name(site),
        selection=dg.AssetSelection.assets(*keys),
        executor_def=dg.in_process_executor,
        description="Compacts small files of the lake's Delta tables and removes old files; can run "
        "concurrently with the stream.",
    )


def maintenance_schedule(site: Site) -> dg.ScheduleDefinition:
    """The schedule of that job."""
    return scheduled(
        f"{site.safe_name}_maintenance_schedule",
        maintenance_job_name(site),
        site.maintenance_cron,
        USUAL_CRON,
        "wal2lake.maintenance.schedule",
        f"Maintains the Delta tables of {site.name}",
    )


def facts(reports: list[MaintainedTable]) -> dict[str, Any]:
    """Metadata of one captured table: files and bytes before and after, and removed files, per Delta table."""
    figures: dict[str, Any] = {}
    for report in reports:
        done, kind = report.done, report.kind
        figures |= {
            f"{kind}_files_before": done.files_before,
            f"{kind}_files_after": done.files_after,
            f"{kind}_bytes_before": done.bytes_before,
            f"{kind}_bytes_after": done.bytes_after,
            f"{kind}_files_rewritten": done.rewritten,
            f"{kind}_files_removed": done.removed,
            f"{kind}_delta_version": done.version,
        }
    return {**figures, "seconds": round(sum(report.done.seconds for report in reports), 3)}


def _line(report: MaintainedTable) -> str:
    name = report.kind if report.table is None else f"{report.table} {report.kind}"
    return f"{name}: {report.done.files_before:,} → {report.done.files_after:,} files, {report.done.removed:,} removed"
