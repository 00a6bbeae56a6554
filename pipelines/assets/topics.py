"""A connector that writes only to Kafka: the stream as one step, and an asset for the events of each table."""

# Dagster inspects the annotation of `context` itself, so annotations are not postponed in this file.

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg

from cdc_core.engine import BatchReport, StreamReport
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId
from wal2lake.pipelines.assets.source import named
from wal2lake.pipelines.assets.stream import StreamConfig, changes_spec
from wal2lake.pipelines.assets.streaming import streaming
from wal2lake.pipelines.connector.keys import changes_key, source_key, topic_key
from wal2lake.pipelines.connector.site import Site
from wal2lake.pipelines.reports.metadata import Metadata
from wal2lake.pipelines.step.log import logged

_log = logging.getLogger(__name__)

_CHANGES = "Consumes the replication slot {}, and writes its events to Kafka; the first run takes the initial snapshot."


class TopicTally:
    """Counts records that Kafka has acknowledged and that were not reported. ``add`` is for the stream's thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes: Counter[TableId] = Counter()
        self._lsn = Lsn(0)
        self._lag_bytes = 0

    def add(self, report: BatchReport) -> None:
        """Count a micro-batch."""
        with self._lock:
            self._changes.update(report.events)
            self._lsn, self._lag_bytes = report.commit_lsn, report.lag_bytes

    def tables(self) -> list[TableId]:
        """The tables with changes that have not been reported."""
        with self._lock:
            return [table for table, changes in self._changes.items() if changes]

    @contextmanager
    def taken(self, table: TableId) -> Iterator[Metadata]:
        """The metadata of a table's changes, which count as reported if the context ends without an error."""
        with self._lock:
            changes = self._changes[table]
            told: Metadata = {"changes": changes, "lsn": str(self._lsn), "lag_bytes": self._lag_bytes}
        yield told
        with self._lock:
            self._changes[table] -= changes


class TopicEvents:
    """Logs the content of a ``TopicTally`` as materializations. For the step's thread only.

    A table that is not in the loaded definitions is not reported.
    """

    def __init__(self, context: dg.AssetExecutionContext, site: Site, tally: TopicTally, seconds: float) -> None:
        self._context = context
        self._keys = {table.id: topic_key(site, table.id) for table in site.tables}
        self._tally = tally
        self._seconds = seconds
        self._due_at = time.monotonic() + seconds

    def report_due(self) -> None:
        """Log each table with changes, once an interval. What cannot be logged to Dagster is logged later."""
        if time.monotonic() < self._due_at:
            return
        self._due_at = time.monotonic() + self._seconds
        try:
            self.flush()
        except Exception as error:
            # Not by context.log, which uses the same database.
            _log.warning("A report of the stream could not be logged to Dagster: %s. Retrying.", type(error).__name__)

    def flush(self) -> None:
        """Log each table with changes."""
        for table in self._tally.tables():
            if table in self._keys:
                with self._tally.taken(table) as told:
                    logged(self._context, dg.AssetMaterialization(asset_key=self._keys[table], metadata=told))


def topic_assets(site: Site) -> dg.AssetsDefinition:
    """The events of a connector without a lake; a run takes the initial snapshot first if it has not been taken."""

    @dg.multi_asset(
        name=f"{site.safe_name}_stream",
        specs=[changes_spec(site, {"postgres", "kafka"}, _CHANGES.format(site.slot)), *_topic_specs(site)],
        can_subset=True,
        pool=site.pool,
    )
    def stream(context: dg.AssetExecutionContext, config: StreamConfig) -> Iterator[Any]:
        tally = TopicTally()

        def drain(should_stop: Callable[[], bool]) -> StreamReport:
            engine = site.open()
            engine.initial_snapshot()
            if not engine.streams:
                context.log.warning("snapshot.mode does not stream changes: nothing is read from the slot.")
                return StreamReport(0, 0, engine.pending().confirmed_lsn or Lsn(0), (), 0.0, "snapshot.mode")
            return engine.stream(config.until(), on_batch=tally.add, should_stop=should_stop)

        with streaming(context, site, drain, TopicEvents(context, site, tally, config.report_seconds)) as report:
            if changes_key(site) in context.selected_asset_keys:
                told: Metadata = {"events": report.events, "lsn": str(report.lsn), "stopped_by": report.stopped_by}
                yield dg.MaterializeResult(asset_key=changes_key(site), metadata=told)

    return stream


def _topic_specs(site: Site) -> list[dg.AssetSpec]:
    return [
        dg.AssetSpec(
            topic_key(site, table.id),
            deps=[source_key(site, table.id), changes_key(site)],
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
