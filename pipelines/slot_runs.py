"""Runs of a connector's slot: who works on it or waits for it, and whether a lasting run should give way."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import dagster as dg

from pipelines.jobs import SLOT_TAG, snapshot_job_name, stream_job_name
from pipelines.keys import part
from pipelines.site import Site

LOOK_SECONDS = 3.0
# A run that waits for a place because all are taken is given one after so long, by a stream that ran at least so long.
PATIENCE_SECONDS = 60.0
FAIR_SECONDS = 120.0
# Dagster's daemon starts a crashed run again within seconds; longer than this it is not waited for.
RETRY_SECONDS = 60.0

_REPORTS = {
    dg.DagsterEventType.ASSET_MATERIALIZATION,
    dg.DagsterEventType.ASSET_CHECK_EVALUATION,
    dg.DagsterEventType.ASSET_OBSERVATION,
}
_WILL_RETRY = "dagster/will_retry"
_RETRIED_BY = "dagster/auto_retry_run_id"

_log = logging.getLogger(__name__)

_WAITING = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
]
_UNFINISHED = [*_WAITING, dg.DagsterRunStatus.CANCELING]
_WORKING = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
_MOST = 200


def unfinished_run(instance: dg.DagsterInstance, site: Site) -> dg.DagsterRun | None:
    """A queued or running run that consumes the connector's slot, launched by whomever."""
    for run in instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED), limit=_MOST):
        if consumes_slot(run, site):
            return run
    return None


def last_report(instance: dg.DagsterInstance, run: dg.DagsterRun) -> float:
    """When the run last told Dagster of a table, in seconds of the epoch; 0 when it never did."""
    found = instance.get_records_for_run(run.run_id, of_type=_REPORTS, limit=1, ascending=False).records
    return found[0].event_log_entry.timestamp if found else 0.0


def retry_to_come(instance: dg.DagsterInstance, site: Site, now: float) -> str | None:
    """The crashed run of the stream that Dagster itself is about to start again; two new ones would be one too many."""
    for record in instance.get_run_records(dg.RunsFilter(job_name=stream_job_name(site)), limit=1):
        tags, ended = record.dagster_run.tags, record.end_time or 0.0
        is_crashed = record.dagster_run.status is dg.DagsterRunStatus.FAILURE and tags.get(_WILL_RETRY) == "true"
        if is_crashed and _RETRIED_BY not in tags and now - ended < RETRY_SECONDS:
            return record.dagster_run.run_id
    return None


def consumes_slot(run: dg.DagsterRun, site: Site) -> bool:
    """Whether the run works on the slot: by its job, its tag, the assets it makes or, for a whole job, its pool."""
    if run.job_name in (stream_job_name(site), snapshot_job_name(site)) or run.tags.get(SLOT_TAG) == site.slot:
        return True
    if run.asset_selection is None:
        pools = run.run_op_concurrency.all_pools if run.run_op_concurrency else None
        return site.pool in (pools or ())
    return any(
        key.path[0] == part(site.name) and key.path[1] in ("snapshot", "changes", "lake")
        for key in run.asset_selection
        if len(key.path) > 1
    )


class Turn:
    """Tells a run of the stream, which lasts, when it should end so that others get their turn.

    * Another run of its slot waits: who launches a snapshot must not wait an hour.
    * Every place for runs is taken and some run has waited for one: the stream that has run longest gives its own up.
    """

    def __init__(
        self, instance: dg.DagsterInstance, run_id: str, site: Site, clock: Callable[[], float] = time.time
    ) -> None:
        self._instance = instance
        self._run_id = run_id
        self._site = site
        self._now = clock
        self._started = self._looked = clock()

    def reason(self) -> str | None:
        """Why to end now. Asks Dagster's database once in a few seconds and is None between."""
        if 0 <= self._now() - self._looked < LOOK_SECONDS:
            return None
        self._looked = self._now()
        try:
            waiting = self._waits_for_the_slot()
            if waiting is not None:
                return f"run {waiting} waits for the slot {self._site.slot}"
            waiting = self._waits_for_a_place()
            return f"run {waiting} waits for a place, and all are taken" if waiting is not None else None
        except Exception as error:
            # A database that is away for a moment is no reason to end the stream.
            _log.warning("Dagster's database did not tell which runs wait: %s.", type(error).__name__)
            return None

    def _waits_for_the_slot(self) -> str | None:
        is_newer = True
        for run in self._instance.get_runs(dg.RunsFilter(statuses=_WAITING), limit=_MOST):
            if run.run_id == self._run_id:
                is_newer = False
            # One that started before this one and has not ended has lost its process: it waits for nothing.
            elif (is_newer or run.status is dg.DagsterRunStatus.QUEUED) and consumes_slot(run, self._site):
                return run.run_id
        return None

    def _waits_for_a_place(self) -> str | None:
        queue = self._instance.get_concurrency_config().run_queue_config
        if queue is None or queue.max_concurrent_runs < 0 or self._now() - self._started < FAIR_SECONDS:
            return None
        waiting = self._instance.get_run_records(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]), limit=_MOST)
        waiting = [one for one in waiting if self._now() - one.create_timestamp.timestamp() > PATIENCE_SECONDS]
        if not waiting:
            return None
        working = self._instance.get_run_records(dg.RunsFilter(statuses=_WORKING), limit=_MOST)
        streams = [one for one in working if SLOT_TAG in one.dagster_run.tags or one.dagster_run.run_id == self._run_id]
        oldest = min(streams, key=lambda one: one.storage_id, default=None)
        is_full = len(working) >= queue.max_concurrent_runs
        if is_full and oldest is not None and oldest.dagster_run.run_id == self._run_id:
            return waiting[-1].dagster_run.run_id
        return None
