"""The step of a stream, for every destination: it reports while it runs, gives way, and can be cancelled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import dagster as dg

from cdc_core.engine import StreamReport
from wal2lake.pipelines.connector.site import Site
from wal2lake.pipelines.jobs.connector import CANCELLED
from wal2lake.pipelines.jobs.slot_runs import YieldPolicy
from wal2lake.pipelines.step.background import BackgroundWork
from wal2lake.pipelines.step.failure import reported, retried
from wal2lake.pipelines.step.interrupts import held
from wal2lake.pipelines.step.log import name_run

SENSOR_TAG = "dagster/sensor_name"


class Reports(Protocol):
    """The reports of a stream to Dagster while it runs."""

    def report_due(self) -> None:
        """Log pending events. An error of Dagster's database is no error of the stream: it is logged again later."""

    def flush(self) -> None:
        """Log the remaining events, also after an error of the stream."""


@contextmanager
def streaming(
    context: dg.AssetExecutionContext,
    site: Site,
    drain: Callable[[Callable[[], bool]], StreamReport],
    reports: Reports,
) -> Iterator[StreamReport]:
    """Run ``drain`` in a background thread until it ends or has to give way; its report is the context's value.

    ``drain`` is given a function that says whether to stop. What ``reports`` has left is logged when the context ends,
    after the results that the step yields in it. Errors of the engine become Dagster's, those that pass are retried.
    """
    name_run(context, f"stream of {site.name}")
    policy = YieldPolicy(context.instance, context.run.run_id, site, heeds_pause=SENSOR_TAG in context.run.tags)
    work = BackgroundWork(drain, f"The stream of {site.name}")

    def tick() -> None:
        with held():
            reports.report_due()
        reason = policy.reason()
        if reason is not None and work.stop():
            context.log.info(f"The stream ends after this round: {reason}.")

    with retried(context), reported():
        try:
            yield work.run(tick, context.log)
        except dg.DagsterExecutionInterruptedError:
            with held():
                context.log.info(f"Cancelled. {CANCELLED.format(site.safe_name)}")
            raise
        finally:
            with held():
                reports.flush()
