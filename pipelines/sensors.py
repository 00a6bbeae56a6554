"""Two sensors a connector: one finds tables, one starts the stream when the slot has something. Neither needs Spark."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace

import dagster as dg

from cdc_core.errors import CdcError
from pipelines import catalogue
from pipelines.jobs import SLOT_TAG, stream_job_name
from pipelines.keys import part
from pipelines.partitions import partitions_name, table_partitions
from pipelines.site import Site, SlotNews
from pipelines.slot_runs import last_report, retry_to_come, unfinished_run

DISCOVERY_SECONDS = 30
SLOT_SECONDS = 5
BACKOFF_SECONDS = 15.0
BACKOFF_MOST_SECONDS = 600.0
# A run that has started takes this long at the most to start Spark and claim the slot.
DEAD_AFTER_SECONDS = 180.0


def sensors(site: Site) -> list[dg.SensorDefinition]:
    """Both sensors of a connector, on from the start."""
    return [discovery_sensor(site), slot_sensor(site)]


def discovery_sensor(site: Site) -> dg.SensorDefinition:
    """Asks the server for the captured tables: new ones become partitions, and the cached catalogue follows."""

    @dg.sensor(
        name=f"{site.safe_name}_tables",
        target=dg.AssetSelection.assets([part(site.name), "snapshot"]),
        minimum_interval_seconds=DISCOVERY_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Keeps the partitions of {site.name}'s snapshots in step with its captured tables.",
    )
    def find_tables(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            tables = site.open().tables()
        except CdcError as error:
            return dg.SkipReason(str(error))
        changed = catalogue.write(site.state_path, tables)
        partitions = table_partitions(site)
        known = context.instance.get_dynamic_partitions(partitions_name(site))
        missing = sorted({str(table.id) for table in tables} - set(known))
        if changed and {table.id for table in tables} != {table.id for table in site.tables}:
            context.log.info("The captured tables changed; reload the code location to see their lake assets.")
        if not missing:
            return dg.SkipReason(f"{len(tables)} tables, all known")
        return dg.SensorResult(dynamic_partitions_requests=[partitions.build_add_request(missing)])

    return find_tables


@dataclass(frozen=True, slots=True)
class Attempt:
    """The cursor of the slot sensor: where the slot stood when the last run was asked for, and how often since.

    ``idle_run`` is a started run that was first seen without the slot's claim at ``idle_since``.
    """

    confirmed: int = -1
    attempts: int = 0
    at: float = 0.0
    idle_run: str = ""
    idle_since: float = 0.0

    @classmethod
    def parse(cls, cursor: str | None) -> Attempt:
        """The cursor's text read back; a fresh one where there is none or it is not ours."""
        try:
            return cls(**json.loads(cursor or "{}"))
        except (ValueError, TypeError):
            return cls()

    def next(self, confirmed: int, now: float) -> Attempt | None:
        """The attempt to make now, or None while one that brought the slot no further is given time."""
        if confirmed != self.confirmed:
            return Attempt(confirmed, 1, now)
        pause = min(BACKOFF_SECONDS * 2 ** (self.attempts - 1), BACKOFF_MOST_SECONDS)
        return Attempt(confirmed, self.attempts + 1, now) if now >= self.at + pause else None


def slot_sensor(site: Site) -> dg.SensorDefinition:
    """Starts the streaming job when the slot has something and no run of that slot is waiting or running."""

    @dg.sensor(
        name=f"{site.safe_name}_slot",
        job_name=stream_job_name(site),
        minimum_interval_seconds=SLOT_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Starts {stream_job_name(site)} when the slot {site.slot} has changes.",
    )
    def watch_slot(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        busy = unfinished_run(context.instance, site)
        try:
            news = site.open().pending()
        except CdcError as error:
            return dg.SkipReason(str(error))
        last = Attempt.parse(context.cursor)
        if busy is None:
            crashed = retry_to_come(context.instance, site, time.time())
            if crashed is not None:
                return dg.SkipReason(f"run {crashed} crashed, and Dagster starts it again")
            return decide(site, news, last, time.time())
        watched = watch_over(busy, news, last, time.time())
        context.update_cursor(json.dumps(asdict(watched)))
        if is_dead(context.instance, busy, watched, time.time()):
            context.instance.report_run_failed(
                busy, f"Nothing has worked on the slot {site.slot} for {DEAD_AFTER_SECONDS:.0f} s: its process is gone."
            )
            return dg.SkipReason(f"run {busy.run_id} was found dead and is ended; the next look starts another")
        return dg.SkipReason(f"run {busy.run_id} of the slot {site.slot} is not finished")

    return watch_slot


def watch_over(run: dg.DagsterRun, news: SlotNews, last: Attempt, now: float) -> Attempt:
    """Note since when a started run has not been at work on the slot.

    A machine that stops takes its run workers with it, and nobody tells Dagster: the run would be «started» for ever
    and keep the slot's place. Who works on a slot holds a lock on the server, which ends with its process.
    """
    if run.status is not dg.DagsterRunStatus.STARTED or news.is_claimed or news.slot_active:
        return replace(last, idle_run="", idle_since=0.0)
    if last.idle_run == run.run_id:
        return last
    return replace(last, idle_run=run.run_id, idle_since=now)


def is_dead(instance: dg.DagsterInstance, run: dg.DagsterRun, watched: Attempt, now: float) -> bool:
    """Whether a started run has not been at work for so long that its process is gone.

    At its end it lets go of the slot and reports its tables, which takes a while where they are many.
    """
    if not watched.idle_run or now - watched.idle_since <= DEAD_AFTER_SECONDS:
        return False
    return now - last_report(instance, run) > DEAD_AFTER_SECONDS


def decide(site: Site, news: SlotNews, last: Attempt, now: float) -> dg.SensorResult | dg.SkipReason:
    """A run of the streaming job, or why there is none."""
    if not news.slot_exists:
        return dg.SkipReason(f"the slot {site.slot} does not exist; take a snapshot first")
    if not news.has_changes:
        return dg.SkipReason(f"the slot {site.slot} has nothing new")
    attempt = last.next(int(news.confirmed_lsn or 0), now)
    if attempt is None:
        return dg.SkipReason(f"the last run brought the slot {site.slot} no further; waiting before the next")
    run_key = f"{site.slot}:{attempt.confirmed}:{attempt.attempts}:{int(attempt.at)}"
    return dg.SensorResult(
        run_requests=[dg.RunRequest(run_key=run_key, tags={SLOT_TAG: site.slot})], cursor=json.dumps(asdict(attempt))
    )
