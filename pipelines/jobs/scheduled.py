"""A schedule whose time the connector file may set."""

from __future__ import annotations

from typing import Any

import dagster as dg


def scheduled(
    name: str, job_name: str, cron: str, usual: str, option: str, what: str, **more: Any
) -> dg.ScheduleDefinition:
    """Return a schedule that runs at ``cron``; if that is empty it is stopped, and its time is ``usual``.

    ``option``: the property that sets the time. ``what``: a sentence without its full stop. ``more`` is Dagster's.
    """
    how = f"{option} of the connector file" if cron else f"set {option}"
    return dg.ScheduleDefinition(
        name=name,
        job_name=job_name,
        cron_schedule=cron or usual,
        default_status=dg.DefaultScheduleStatus.RUNNING if cron else dg.DefaultScheduleStatus.STOPPED,
        description=f"{what} ({how}).",
        **more,
    )
