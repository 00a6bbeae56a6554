"""Two sensors per connector: one discovers tables, one starts streaming runs when the slot has a backlog."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import dagster as dg

from cdc_core.errors import CdcError
from cdc_core.schema import TableId
from wal2lake.pipelines.connector import catalogue, pause
from wal2lake.pipelines.connector.partitions import (
    range_partitions,
    ranges_name,
    table_of,
    table_partitions,
)
from wal2lake.pipelines.connector.site import Site, SlotFacts
from wal2lake.pipelines.jobs.connector import CANCELLED, SLOT_TAG, snapshot_job_name, stream_job_name
from wal2lake.pipelines.jobs.pauses import resume_job_name
from wal2lake.pipelines.jobs.slot_runs import last_report, run_to_come, unfinished_run
from wal2lake.pipelines.sensors.reload import reload_soon

DISCOVERY_SECONDS = 30
RANGES_SECONDS = 600.0
# Of one tick: Dagster adds them in one transaction.
MOST_ADDED = 10_000
_MOST_NAMED = 20
NOT_SHOWN = "press Reload definitions (Deployment, Code locations) to see assets of the tables that changed"
SLOT_SECONDS = 5
BACKOFF_SECONDS = 15.0
BACKOFF_MAX_SECONDS = 600.0
# A started run takes at most this long to start Spark and claim the slot.
DEAD_AFTER_SECONDS = 180.0


PartitionsRequest = dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest


def sensors(site: Site) -> list[dg.SensorDefinition]:
    """Both sensors of a connector; they are running by default."""
    return [discovery_sensor(site), slot_sensor(site)]


def discovery_sensor(site: Site) -> dg.SensorDefinition:
    """Reads the captured tables from the server, adds and deletes partitions, and updates the cached catalogue."""

    @dg.sensor(
        name=f"{site.safe_name}_tables",
        # Named, because the sensor's page links the job that it is about.
        job_name=stream_job_name(site) if site.is_kafka_only else snapshot_job_name(site),
        minimum_interval_seconds=DISCOVERY_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Adds partitions to the snapshot assets of {site.name}, for each new captured table and for the "
        "ranges of its key, and deletes those of tables that are no longer captured.",
    )
    def find_tables(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            tables = site.open().tables()
        except CdcError as error:
            return dg.SkipReason(str(error))
        changed = catalogue.write(site.state_path, tables)
        news = ""
        if {table.id for table in tables} != {table.id for table in site.tables}:
            news = f"; {NOT_SHOWN}"
            if changed and reload_soon(context):
                news = "; the code location is reloaded to show the tables that changed"
            context.log.info(f"The captured tables changed{news}")
        if site.is_kafka_only:
            return dg.SkipReason(f"{len(tables)} tables{news}")
        # The lake tables of tables that are no longer captured stay; their partitions are no longer offered.
        requests = _changes(context, table_partitions(site), sorted(str(table.id) for table in tables))
        ranges, cursor = _ranges(context, site, {table.id for table in tables if table.lake_key})
        requests += ranges
        if not requests:
            context.update_cursor(cursor)
            return dg.SkipReason(f"{len(tables)} tables, no new partitions{news}")
        return dg.SensorResult(dynamic_partitions_requests=requests, cursor=cursor)

    return find_tables


def _changes(
    context: dg.SensorEvaluationContext, partitions: dg.DynamicPartitionsDefinition, keys: Sequence[str]
) -> list[PartitionsRequest]:
    """The requests that make the partitions those that are wanted, in that order; at most ``MOST_ADDED`` new ones."""
    known = context.instance.get_dynamic_partitions(str(partitions.name))
    missing = [key for key in keys if key not in set(known)][:MOST_ADDED]
    gone = sorted(set(known) - set(keys))
    requests: list[PartitionsRequest] = []
    if missing:
        requests.append(partitions.build_add_request(missing))
    if gone:
        context.log.info(f"{len(gone)} partitions are deleted: {', '.join(gone[:_MOST_NAMED])}.")
        requests.append(partitions.build_delete_request(gone))
    return requests


def _ranges(
    context: dg.SensorEvaluationContext, site: Site, keyed: set[TableId]
) -> tuple[list[PartitionsRequest], str]:
    """The requests for the partitions of incremental snapshots, and the cursor: when they were looked at.

    Plans are stable; they are looked at every ten minutes, and sooner while a table has no ranges yet.
    """
    known = {table_of(key) for key in context.instance.get_dynamic_partitions(ranges_name(site))}
    if known == keyed and time.time() - float(context.cursor or 0) < RANGES_SECONDS:
        return [], str(context.cursor)
    try:
        planned = site.open().plan_incremental()
    except CdcError as error:
        context.log.info(f"The ranges of incremental snapshots are not known: {error}")
        return [], str(context.cursor or 0)
    return _changes(context, range_partitions(site), [key_range.name for key_range in planned]), str(time.time())


@dataclass(frozen=True, slots=True)
class Attempt:
    """Cursor of the slot sensor: the slot's position when the last run was requested, and the number of attempts since.

    ``idle_run`` is a started run that was first seen without a claim on the slot at ``idle_since``.
    """

    confirmed: int = -1
    attempts: int = 0
    at: float = 0.0
    idle_run: str = ""
    idle_since: float = 0.0

    @classmethod
    def parse(cls, cursor: str | None) -> Attempt:
        """Parse a cursor; a new one if it is missing or not valid."""
        try:
            return cls(**json.loads(cursor or "{}"))
        except (ValueError, TypeError):
            return cls()

    def next(self, confirmed: int, now: float) -> Attempt | None:
        """The next attempt, or None during the backoff after runs that did not advance the slot."""
        if confirmed != self.confirmed:
            return Attempt(confirmed, 1, now)
        wait = min(BACKOFF_SECONDS * 2 ** (self.attempts - 1), BACKOFF_MAX_SECONDS)
        return Attempt(confirmed, self.attempts + 1, now) if now >= self.at + wait else None


def slot_sensor(site: Site) -> dg.SensorDefinition:
    """Starts the streaming job when the slot has a backlog and no run of that slot is queued or running."""

    @dg.sensor(
        name=f"{site.safe_name}_slot",
        job_name=stream_job_name(site),
        minimum_interval_seconds=SLOT_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Starts a run of {stream_job_name(site)} when the replication slot {site.slot} has a backlog. "
        f"{CANCELLED.format(site.safe_name)}",
    )
    def watch_slot(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        busy = unfinished_run(context.instance, site)
        paused = pause.read(site.state_path)
        if paused is not None and busy is None:
            return dg.SkipReason(f"{site.name} is {paused}; run {resume_job_name(site)} to resume it")
        try:
            engine = site.open()
            backlog, streams = engine.pending(), engine.streams
        except CdcError as error:
            return dg.SkipReason(str(error))
        last = Attempt.parse(context.cursor)
        if busy is None:
            reason = None if streams else f"snapshot.mode of {site.name} does not stream changes"
            reason = reason or run_to_come(context.instance, site, time.time())
            if reason is not None:
                return dg.SkipReason(reason)
            return decide(site, backlog, last, time.time())
        watched = watch_run(busy, backlog, last, time.time())
        context.update_cursor(json.dumps(asdict(watched)))
        if is_dead(context.instance, busy, watched, time.time()):
            context.instance.report_run_failed(
                busy,
                f"The slot {site.slot} was not in use for {DEAD_AFTER_SECONDS:.0f} s: the process of the "
                "run no longer exists.",
            )
            return dg.SkipReason(
                f"the process of run {busy.run_id} no longer exists, and the run is marked as "
                "failed; the next evaluation starts a new run"
            )
        return dg.SkipReason(f"run {busy.run_id} of the slot {site.slot} is not finished")

    return watch_slot


def watch_run(run: dg.DagsterRun, backlog: SlotFacts, last: Attempt, now: float) -> Attempt:
    """Record since when a started run has had no claim on the slot.

    If a machine stops, Dagster is not notified about its run workers: the run would stay in status STARTED and occupy
    the slot's pool. A process that uses a slot holds an advisory lock on the server, which is released when it ends.
    """
    if run.status is not dg.DagsterRunStatus.STARTED or backlog.is_claimed or backlog.slot_active:
        return replace(last, idle_run="", idle_since=0.0)
    if last.idle_run == run.run_id:
        return last
    return replace(last, idle_run=run.run_id, idle_since=now)


def is_dead(instance: dg.DagsterInstance, run: dg.DagsterRun, watched: Attempt, now: float) -> bool:
    """Whether a started run has had no claim for so long that its process no longer exists.

    At its end a run releases the slot and then reports its tables, which can take some time.
    """
    if not watched.idle_run or now - watched.idle_since <= DEAD_AFTER_SECONDS:
        return False
    return now - last_report(instance, run) > DEAD_AFTER_SECONDS


def decide(site: Site, backlog: SlotFacts, last: Attempt, now: float) -> dg.SensorResult | dg.SkipReason:
    """A run request for the streaming job, or a skip reason."""
    if not backlog.slot_exists:
        how = f"run {stream_job_name(site)}, which takes" if site.is_kafka_only else "take"
        return dg.SkipReason(f"the slot {site.slot} does not exist; {how} a snapshot first")
    if not backlog.has_changes:
        return dg.SkipReason(f"the slot {site.slot} has no backlog")
    if backlog.is_claimed:
        return dg.SkipReason(
            f"the slot {site.slot} is in use: by an incremental snapshot that streams to its own end, or by a command"
        )
    attempt = last.next(int(backlog.confirmed_lsn or 0), now)
    if attempt is None:
        return dg.SkipReason(f"the last run did not advance the slot {site.slot}; waiting before the next run")
    run_key = f"{site.slot}:{attempt.confirmed}:{attempt.attempts}:{int(attempt.at)}"
    return dg.SensorResult(
        run_requests=[dg.RunRequest(run_key=run_key, tags={SLOT_TAG: site.pool})], cursor=json.dumps(asdict(attempt))
    )
