"""A connector that writes to Kafka alone: the stream as one step, and an asset for the events of each table."""

# Dagster inspects the annotation of `context` itself, so annotations are not postponed in this file.

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg

from cdc_core.engine.reports import BatchReport, StreamReport
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from pipelines.assets.source import named
from pipelines.assets.stream import SENSOR_TAG, StreamConfig, changes_spec
from pipelines.connector.keys import changes_key, topic_key
from pipelines.connector.site import Site
from pipelines.jobs.connector import CANCELLED
from pipelines.jobs.slot_runs import YieldPolicy
from pipelines.reports.metadata import Metadata
from pipelines.step.background import BackgroundWork
from pipelines.step.failure import reported, retried
from pipelines.step.interrupts import held

_log = logging.getLogger(__name__)

_CHANGES = "Consumes the replication slot {}, and writes its events to Kafka; the first run takes the initial snapshot."


class TopicTally:
    """Counts what Kafka has acknowledged since the last report. ``add`` is for the stream's thread."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._changes: Counter[TableId] = Counter()
        self._lsn = Lsn(0)
        self._lag_bytes = 0
        self._told_at = time.monotonic()

    def add(self, report: BatchReport) -> None:
        """Count a micro-batch."""
        with self._lock:
            self._changes.update(report.events)
            self._lsn, self._lag_bytes = report.commit_lsn, report.lag_bytes

    @property
    def is_due(self) -> bool:
        """Whether a report is due."""
        return time.monotonic() - self._told_at >= self._seconds

    def taken(self) -> dict[TableId, Metadata]:
        """Return the metadata of each table with changes, and begin to count anew."""
        self._told_at = time.monotonic()
        with self._lock:
            changes, self._changes = self._changes, Counter()
            shared: Metadata = {"lsn": str(self._lsn), "lag_bytes": self._lag_bytes}
        return {table: {"changes": count, **shared} for table, count in changes.items() if count}


def topic_assets(site: Site) -> dg.AssetsDefinition:
    """The events of a connector without a lake; a run takes the initial snapshot first if it has not been taken."""
    keys = {table.id: topic_key(site, table.id) for table in site.tables}

    @dg.multi_asset(
        name=f"{site.safe_name}_stream",
        specs=[changes_spec(site, {"postgres", "kafka"}, _CHANGES.format(site.slot)), *_topic_specs(site)],
        can_subset=True,
        pool=site.pool,
    )
    def stream(context: dg.AssetExecutionContext, config: StreamConfig) -> Iterator[Any]:
        tally = TopicTally(config.report_seconds)
        policy = YieldPolicy(context.instance, context.run.run_id, site, heeds_pause=SENSOR_TAG in context.run.tags)

        def drain(should_stop: Callable[[], bool]) -> StreamReport:
            engine = site.open()
            engine.initial_snapshot()
            return engine.stream(config.until(), on_batch=tally.add, should_stop=should_stop)

        work = BackgroundWork(drain, f"The stream of {site.name}")

        def tick() -> None:
            if tally.is_due:
                with held():
                    _report(context, keys, tally)
            reason = policy.reason()
            if reason is not None and work.stop():
                context.log.info(f"The stream ends: {reason}.")

        with retried(context), reported():
            try:
                report = work.run(tick, context.log)
                if changes_key(site) in context.selected_asset_keys:
                    told: Metadata = {"events": report.events, "lsn": str(report.lsn), "stopped_by": report.stopped_by}
                    yield dg.MaterializeResult(asset_key=changes_key(site), metadata=told)
            except dg.DagsterExecutionInterruptedError:
                with held():
                    context.log.info(f"Cancelled. {CANCELLED.format(site.safe_name)}")
                raise
            finally:
                with held():
                    _report(context, keys, tally)

    return stream


def _report(context: dg.AssetExecutionContext, keys: dict[TableId, dg.AssetKey], tally: TopicTally) -> None:
    """Log a materialization of each table with changes; of a table that is not in the loaded definitions none."""
    for table, found in tally.taken().items():
        if table not in keys:
            continue
        try:
            context.log_event(dg.AssetMaterialization(asset_key=keys[table], metadata=found))
        except Exception as error:
            # Not by context.log, which uses the same database. The next report has what comes then.
            _log.warning("A report of the stream could not be logged to Dagster: %s.", type(error).__name__)


def _topic_specs(site: Site) -> list[dg.AssetSpec]:
    return [
        dg.AssetSpec(
            topic_key(site, table.id),
            deps=[changes_key(site)],
            group_name=site.group("topics"),
            kinds={"kafka"},
            owners=site.owners,
            tags=site.tags,
            # A run does not materialize a table without changes.
            skippable=True,
            description=f"Events of the source table {table.id} in Kafka.",
            metadata=named(table),
        )
        for table in site.tables
    ]
