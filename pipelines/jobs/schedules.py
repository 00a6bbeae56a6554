"""Schedules of a connector: the incremental snapshot of selected tables.

A tick runs the job that sends the signal; the streaming run reads the tables. If no run is streaming at that time, the
next one processes the signal.
"""

from __future__ import annotations

import dagster as dg

from pipelines.connector.site import Site
from pipelines.jobs.scheduled import scheduled
from pipelines.jobs.signals import incremental_config, incremental_job_name

# Used, with the schedule stopped, if the connector file does not set one.
USUAL_CRON = "0 3 * * 0"


def schedule_name(site: Site) -> str:
    """The schedule of the incremental snapshot."""
    return f"{site.safe_name}_incremental_snapshot_schedule"


def schedules(site: Site) -> list[dg.ScheduleDefinition]:
    """All schedules of a connector."""
    plan = site.snapshot_plan
    tables = ", ".join(plan.tables) or "all captured tables"
    return [
        scheduled(
            schedule_name(site),
            incremental_job_name(site),
            plan.cron,
            USUAL_CRON,
            "wal2lake.snapshot.schedule",
            f"Requests an incremental snapshot of {tables} from the streaming run of {site.name}",
            execution_timezone=plan.timezone,
            run_config=incremental_config(site, plan.tables),
        )
    ]
