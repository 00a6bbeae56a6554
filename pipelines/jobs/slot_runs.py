"""Runs of a connector's slot: running and queued runs, and when a streaming run should end for a queued one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

import dagster as dg

from wal2lake.pipelines.connector import pause
from wal2lake.pipelines.connector.keys import uses_slot
from wal2lake.pipelines.connector.site import Site
from wal2lake.pipelines.jobs.connector import SLOT_TAG, snapshot_job_name, stream_job_name

POLL_SECONDS = 3.0
# A queued run waits this long for max_concurrent_runs; then a streaming run ends for it that has run at least
# MIN_STREAM_SECONDS.
QUEUED_SECONDS = 60.0
MIN_STREAM_SECONDS = 120.0
# Dagster's daemon retries a crashed run within seconds; after this time no retry is expected.
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
_MAX = 200


def unfinished(instance: dg.DagsterInstance) -> Sequence[dg.DagsterRun]:
    """All queued and running runs, newest first; a bounded number."""
    return instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED), limit=_MAX)


def unfinished_run(instance: dg.DagsterInstance, site: Site) -> dg.DagsterRun | None:
    """A queued or running run that consumes the connector's slot, however it was launched."""
    for run in unfinished(instance):
        if consumes_slot(run, site):
            return run
    return None


def last_report(instance: dg.DagsterInstance, run: dg.DagsterRun) -> float:
    """Unix time of the run's last asset event; 0 if it has none."""
    records = instance.get_records_for_run(run.run_id, of_type=_REPORTS, limit=1, ascending=False).records
    return records[0].event_log_entry.timestamp if records else 0.0


def run_to_come(instance: dg.DagsterInstance, site: Site, now: float) -> str | None:
    """Why no other run of the stream must be started, by the run that was launched last; None if one may be started.

    It is a retry that was launched since ``unfinished_run`` looked, or it crashed and Dagster is about to retry it. A
    moment after its failure is recorded Dagster has not decided yet: this is what the missing tag means.
    """
    for record in instance.get_run_records(dg.RunsFilter(job_name=stream_job_name(site)), limit=1):
        run, tags = record.dagster_run, record.dagster_run.tags
        if not run.is_finished:
            return f"run {run.run_id} of the slot {site.slot} is not finished"
        if run.status is not dg.DagsterRunStatus.FAILURE or _RETRIED_BY in tags:
            return None
        is_recent = now - (record.end_time or 0.0) < RETRY_SECONDS
        if is_recent and tags.get(_WILL_RETRY, "true" if instance.run_retries_enabled else "false") == "true":
            return f"run {run.run_id} crashed and will be retried by Dagster"
    return None


def consumes_slot(run: dg.DagsterRun, site: Site) -> bool:
    """Whether the run consumes the slot, according to its job, tag, asset selection or, for a whole job, its pool."""
    if run.job_name in (stream_job_name(site), snapshot_job_name(site)) or run.tags.get(SLOT_TAG) == site.pool:
        return True
    if run.asset_selection is None:
        pools = run.run_op_concurrency.all_pools if run.run_op_concurrency else None
        return site.pool in (pools or ())
    return any(uses_slot(site, key) for key in run.asset_selection)


class YieldPolicy:
    """Decides when a streaming run should end for a queued run.

    * The stream was paused since the run started; with ``heeds_pause`` also if it was paused before.
    * Another run of its slot is queued, for example a snapshot.
    * The maximum number of concurrent runs is reached and a run has been queued for some time: the streaming run that
      has been running longest ends.
    """

    def __init__(
        self,
        instance: dg.DagsterInstance,
        run_id: str,
        site: Site,
        clock: Callable[[], float] = time.time,
        *,
        heeds_pause: bool = False,
    ) -> None:
        self._instance = instance
        self._run_id = run_id
        self._site = site
        self._heeds_pause = heeds_pause
        self._now = clock
        self._started = self._checked = clock()

    def reason(self) -> str | None:
        """The reason to end now, or None. Queries Dagster's database every few seconds and returns None in between."""
        if 0 <= self._now() - self._checked < POLL_SECONDS:
            return None
        self._checked = self._now()
        paused = pause.read(self._site.state_path)
        if paused is not None and (self._heeds_pause or paused.at >= self._started):
            return f"{self._site.name} is {paused}"
        try:
            waiting = self._waits_for_the_slot()
            if waiting is not None:
                return f"run {waiting} is waiting for the slot {self._site.slot}"
            waiting = self._waits_for_a_place()
            return (
                f"run {waiting} is queued, and the maximum number of concurrent runs is reached"
                if waiting is not None
                else None
            )
        except Exception as error:
            # The stream does not end if the database is temporarily not available.
            _log.warning("Queued runs could not be read from Dagster's database: %s.", type(error).__name__)
            return None

    def _waits_for_the_slot(self) -> str | None:
        is_newer = True
        for run in self._instance.get_runs(dg.RunsFilter(statuses=_WAITING), limit=_MAX):
            if run.run_id == self._run_id:
                is_newer = False
            # A run that was started before this one and has not ended has lost its process and does not wait.
            elif (is_newer or run.status is dg.DagsterRunStatus.QUEUED) and consumes_slot(run, self._site):
                return run.run_id
        return None

    def _waits_for_a_place(self) -> str | None:
        queue = self._instance.get_concurrency_config().run_queue_config
        if queue is None or queue.max_concurrent_runs < 0 or self._now() - self._started < MIN_STREAM_SECONDS:
            return None
        waiting = self._instance.get_run_records(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]), limit=_MAX)
        waiting = [record for record in waiting if self._now() - record.create_timestamp.timestamp() > QUEUED_SECONDS]
        if not waiting:
            return None
        working = self._instance.get_run_records(dg.RunsFilter(statuses=_WORKING), limit=_MAX)
        streams = [
            record
            for record in working
            if SLOT_TAG in record.dagster_run.tags or record.dagster_run.run_id == self._run_id
        ]
        oldest = min(streams, key=lambda record: record.storage_id, default=None)
        is_full = len(working) >= queue.max_concurrent_runs
        if is_full and oldest is not None and oldest.dagster_run.run_id == self._run_id:
            return waiting[-1].dagster_run.run_id
        return None
