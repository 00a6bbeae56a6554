"""Events that a snapshot run logs to Dagster: a materialization per finished table, and progress of the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import dagster as dg

from cdc_core.engine import Status
from cdc_core.schema import TableId
from cdc_core.snapshot import Notification, SnapshotProgress, SnapshotReport, SnapshotStatus
from wal2lake.pipelines.assets.notification_events import Budget, NotificationEvents
from wal2lake.pipelines.connector.keys import lake_key, snapshot_key
from wal2lake.pipelines.connector.site import Site
from wal2lake.pipelines.reports import metadata
from wal2lake.pipelines.reports.lake_facts import LakeFacts
from wal2lake.pipelines.reports.provenance import lake_tags, version_tags
from wal2lake.pipelines.step.log import RetriedReports, logged

PROGRESS_SECONDS = 10.0
PROGRESS_PER_MINUTE = 30
# Tables are reported by their materialization and progress.
_OF_TABLES = (SnapshotStatus.IN_PROGRESS, SnapshotStatus.TABLE_SCAN_COMPLETED)


@dataclass(slots=True)
class _Table:
    started: float
    progress: SnapshotProgress
    reported_at: float
    is_reported: bool = False


class SnapshotEvents:
    """Collects the events of a snapshot run.

    The engine's threads call ``listen`` and ``notified``; the step's thread reports, because Dagster's contexts must
    not be shared between threads.
    """

    def __init__(
        self, context: dg.AssetExecutionContext, site: Site, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._context = context
        self._site = site
        self._now = clock
        self._lock = threading.Lock()
        self._tables: dict[TableId, _Table] = {}
        self._budget = Budget(PROGRESS_PER_MINUTE, clock)
        self._notifications = NotificationEvents(site, clock)
        self._facts = LakeFacts(site)
        self._report_soon = RetriedReports("the snapshot", self.report_due, clock)

    def listen(self, progress: SnapshotProgress) -> None:
        """Progress of a table; called by the engine."""
        now = self._now()
        with self._lock:
            # A table that was altered while it was read is started again.
            table = self._tables.setdefault(progress.table, _Table(now, progress, now))
            table.progress = progress

    def notified(self, notification: Notification) -> None:
        """A notification about the whole snapshot; called by the engine."""
        if notification.type not in _OF_TABLES:
            self._notifications.listen(notification)

    def report_soon(self) -> None:
        """Log pending events; if Dagster refuses them, they are retried after a second."""
        self._report_soon()

    def report_due(self) -> None:
        """Log each finished table, and the progress of the others, at a limited rate."""
        now = self._now()
        with self._lock:
            tables = list(self._tables.values())
        for table in tables:
            if table.progress.done and not table.is_reported:
                self._report_done(table, now)
            elif not table.progress.done and now - table.reported_at >= PROGRESS_SECONDS and self._budget.take():
                self._report_progress(table, now)
        for observation in self._notifications.due():
            logged(self._context, observation)

    def finish(self, reports: Iterable[SnapshotReport]) -> None:
        """Log all remaining results, including tables without progress."""
        for report in reports:
            self.listen(SnapshotProgress(report.table, report.rows, report.rows, done=True, report=report))
        self.flush()

    def report_unread(self, tables: Iterable[TableId], status: Status) -> list[str]:
        """Report the tables that were not read as they are in the lake. Returns the names of those that are not."""
        positions = {
            table_status.table: table_status.lake_lsn or table_status.snapshot_lsn for table_status in status.tables
        }
        absent = []
        for table in tables:
            lsn = positions.get(table)
            if lsn is None:
                absent.append(str(table))
                continue
            told = {"lsn": str(lsn), "source": "in the lake before this run; not read again"}
            self._log_partition(table, told)
            self._log_lake(table, told, str(lsn))
        return absent

    def flush(self) -> None:
        """Log finished tables that are not logged yet: only the other tables have to be re-read after an error."""
        self.report_due()
        for observation in self._notifications.due(is_last=True):
            logged(self._context, observation)

    def _report_done(self, table: _Table, now: float) -> None:
        progress = table.progress
        facts = (
            {"dagster/row_count": progress.rows, "seconds": round(now - table.started, 3)}
            if progress.report is None
            else metadata.snapshot(progress.report)
        )
        if progress.ranges_total > 1:
            facts["ranges"] = progress.ranges_total
        self._log_partition(progress.table, facts)
        table.is_reported = True
        if progress.report is not None:
            self._log_lake(progress.table, metadata.snapshot(progress.report), str(progress.report.lsn))
        self._context.log.info(f"{progress.table}: {progress.rows:,} rows, done")

    def _log_partition(self, table: TableId, facts: metadata.Metadata) -> None:
        # A constant version: a table that is re-read is replaced in the lake by the same run, so the lake's tables are
        # not out of date because of it.
        tags, key = version_tags(self._site.slot), snapshot_key(self._site)
        logged(self._context, dg.AssetMaterialization(asset_key=key, partition=str(table), metadata=facts, tags=tags))

    def _log_lake(self, table: TableId, facts: metadata.Metadata, lsn: str) -> None:
        """Log the lake table, which has the table's rows up to ``lsn``."""
        key, tags = lake_key(self._site, table), lake_tags(self._site, table, lsn)
        logged(self._context, dg.AssetMaterialization(asset_key=key, metadata=facts | self._facts.of(table), tags=tags))

    def _report_progress(self, table: _Table, now: float) -> None:
        table.reported_at = now
        facts = metadata.snapshot_progress(table.progress, now - table.started)
        words = metadata.progress_text(table.progress, now - table.started)
        logged(
            self._context,
            dg.AssetObservation(
                asset_key=snapshot_key(self._site),
                partition=str(table.progress.table),
                description=words,
                metadata=facts,
            ),
        )
        self._context.log.info(f"{table.progress.table}: {words}")
