"""Events that a run of incremental snapshots logs to Dagster: a materialization per range, and progress per table."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import dagster as dg

from cdc_core.engine import Status
from cdc_core.schema import TableId
from cdc_core.snapshot import IncrementalProgress, RangeReport
from wal2lake.pipelines.assets.notification_events import Budget
from wal2lake.pipelines.connector.keys import incremental_key, lake_key
from wal2lake.pipelines.connector.site import Site
from wal2lake.pipelines.reports import metadata
from wal2lake.pipelines.reports.lake_facts import LakeFacts
from wal2lake.pipelines.reports.provenance import lake_tags, version_tags
from wal2lake.pipelines.step.log import RetriedReports, logged

PROGRESS_SECONDS = 10.0
PROGRESS_PER_MINUTE = 30


class IncrementalEvents:
    """Collects what the engine's thread reports; the step's thread logs it, because Dagster's contexts need that."""

    def __init__(
        self, context: dg.AssetExecutionContext, site: Site, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._context = context
        self._site = site
        self._now = clock
        self._lock = threading.Lock()
        self._done: deque[RangeReport] = deque()
        self._progress: dict[TableId, IncrementalProgress] = {}
        self._reported: dict[TableId, float] = {}
        self._budget = Budget(PROGRESS_PER_MINUTE, clock)
        self._report_soon = RetriedReports("a range", self.report_due, clock)

    def listen(self, progress: IncrementalProgress) -> None:
        """Progress of a table; called by the engine."""
        with self._lock:
            self._progress[progress.table] = progress

    def applied(self, report: RangeReport) -> None:
        """A range that is in the lake, or that is left out; called by the engine."""
        if report.is_applied:
            with self._lock:
                self._done.append(report)

    def report_soon(self) -> None:
        """Log pending events; if Dagster refuses them, they are retried after a second."""
        self._report_soon()

    def report_due(self) -> None:
        """Log each range that is in the lake, and the progress of tables at a limited rate."""
        while self._done:
            self._log_range(self._done[0])
            self._done.popleft()
        with self._lock:
            progress = dict(self._progress)
        now = self._now()
        for table, table_progress in progress.items():
            is_due = now - self._reported.setdefault(table, now) >= PROGRESS_SECONDS
            if is_due and table_progress.ranges_applied < table_progress.ranges and self._budget.take():
                self._reported[table] = now
                self._log_progress(table_progress)

    def report_tables(self, tables: set[TableId], status: Status) -> None:
        """Log the lake tables at the position that they have now, with ranges of this run."""
        facts = LakeFacts(self._site)
        for table_status in status.tables:
            if table_status.table in tables and table_status.lake_lsn is not None:
                told = {"lsn": str(table_status.lake_lsn)} | facts.of(table_status.table)
                tags = lake_tags(self._site, table_status.table, str(table_status.lake_lsn))
                logged(
                    self._context,
                    dg.AssetMaterialization(
                        asset_key=lake_key(self._site, table_status.table), metadata=told, tags=tags
                    ),
                )

    def report_unread(self, keys: list[str]) -> None:
        """Report ranges that the run leaves as they are in the lake."""
        for key in keys:
            self._log_partition(key, {"source": "in the lake before this run; not read again"})

    def _log_range(self, report: RangeReport) -> None:
        self._log_partition(report.range.name, metadata.key_range(report))
        self._context.log.info(f"{report.range.name}: {report.rows:,} rows, in the lake")

    def _log_partition(self, key: str, told: metadata.Metadata) -> None:
        asset, tags = incremental_key(self._site), version_tags(self._site.slot)
        logged(self._context, dg.AssetMaterialization(asset_key=asset, partition=key, metadata=told, tags=tags))

    def _log_progress(self, progress: IncrementalProgress) -> None:
        words = metadata.incremental_text(progress)
        logged(
            self._context,
            dg.AssetObservation(
                asset_key=incremental_key(self._site),
                description=f"{progress.table}: {words}",
                metadata={"table": str(progress.table), **metadata.incremental_progress(progress)},
            ),
        )
        self._context.log.info(f"{progress.table}: {words}")
