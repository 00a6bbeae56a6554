"""Metrics of an operation: its progress, batches and rounds are counted for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace

from cdc_core.engine.reading.seen import Seen
from cdc_core.engine.reading.slot_reader import WaitingChanges
from cdc_core.engine.reports import BatchReport, RoundReport
from cdc_core.engine.stream.run import Hooks
from cdc_core.lake import StreamTable
from cdc_core.observe import ConnectionCounts, ConnectorMetrics, Queue
from cdc_core.schema import TableId
from cdc_core.snapshot import Notification, SnapshotProgress, SnapshotStatus

# Coordinates of SourceEventPosition, as in Debezium's offsets: those of ``LastChange`` after the table.
_POSITION = ("lsn", "lsn_commit", "txId", "ts_usec")


@dataclass(frozen=True, slots=True)
class Meter:
    """Wraps the hooks of an operation to count the reports through them. ``is_read``: whether anything shows counts."""

    metrics: ConnectorMetrics
    is_read: bool = True

    def progress(self, hook: Callable[[SnapshotProgress], None] | None) -> Callable[[SnapshotProgress], None]:
        """Count the rows of a snapshot that replaces tables."""

        def told(progress: SnapshotProgress) -> None:
            refused = 0 if progress.report is None else progress.report.refused
            self.metrics.snapshot_rows(str(progress.table), progress.rows, done=progress.done, filtered=refused)
            if hook is not None:
                hook(progress)

        return told

    def notification(self, hook: Callable[[Notification], None] | None) -> Callable[[Notification], None]:
        """Count snapshots of every kind."""

        def told(notification: Notification) -> None:
            self._note(notification)
            if hook is not None:
                hook(notification)

        return told

    def hooks(self, hooks: Hooks) -> Hooks:
        """Count micro-batches and rounds of the stream; the same hooks if nothing shows the counts."""
        if not self.is_read:
            return hooks

        def on_batch(report: BatchReport) -> None:
            events = sum(report.events.values()) + report.own_rows.get(StreamTable.MESSAGES, 0)
            self.metrics.batch(events, report.lag_bytes, report.behind_seconds)
            if hooks.on_batch is not None:
                hooks.on_batch(report)

        def on_round(report: RoundReport) -> None:
            merged = {
                str(m.table): (m.inserted, m.updated, m.deleted, m.check.quarantined if m.check else 0)
                for m in report.merges
            }
            failed = {str(table) for table in report.failed}
            missing = {str(table): count for table, count in report.missing.items()}
            waiting = {str(m.table): m.waiting for m in report.merges}
            waiting |= {str(table): replay.waiting for table, replay in report.replays.items()}
            checks = {
                (str(m.table), rule.name, rule.severity): rule.failed
                for m in report.merges
                for rule in (m.check.rules if m.check else ())
                if rule.failed and not rule.success
            }
            self.metrics.round(
                report.seconds,
                report.lag_bytes,
                report.lag_seconds,
                merged,
                failed,
                missing,
                waiting,
                checks,
                report.lags,
            )
            if hooks.on_round is not None:
                hooks.on_round(report)

        def on_unmerged(unmerged: Mapping[TableId, str]) -> None:
            self.metrics.standing(str(table) for table in unmerged)
            if hooks.on_unmerged is not None:
                hooks.on_unmerged(unmerged)

        return replace(hooks, on_batch=on_batch, on_round=on_round, on_unmerged=on_unmerged)

    def follow(self, seen: Seen, waiting: Callable[[], WaitingChanges | None] = lambda: None) -> None:
        """Show what a connection has received, and what of that is not durable, until the stream is disconnected."""

        def facts() -> ConnectionCounts:
            queued = waiting()
            last = seen.last
            position = {} if last is None else dict(zip(_POSITION, astuple(last)[2:], strict=True))
            position = {name: value for name, value in position.items() if value is not None}
            return ConnectionCounts(
                seen.transactions,
                seen.filtered,
                seen.last_xid,
                None if last is None else last.table,
                position,
                None if queued is None else Queue(queued.rows, queued.most_rows, queued.bytes, queued.most_bytes),
            )

        self.metrics.follow(facts)

    def _note(self, notification: Notification) -> None:
        data = notification.additional_data
        match notification.type:
            case SnapshotStatus.STARTED:
                self.metrics.snapshot_started(name for name in data.get("data_collections", "").split(",") if name)
            case SnapshotStatus.IN_PROGRESS if data.get("current_collection_in_progress"):
                self.metrics.snapshot_resumed(data["current_collection_in_progress"])
            case SnapshotStatus.TABLE_SCAN_COMPLETED if data.get("scanned_collection"):
                rows = int(data.get("total_rows_scanned", "0"))
                self.metrics.snapshot_rows(data["scanned_collection"], rows, done=True)
            case SnapshotStatus.PAUSED | SnapshotStatus.RESUMED:
                self.metrics.snapshot_paused(notification.type is SnapshotStatus.PAUSED)
            case SnapshotStatus.COMPLETED | SnapshotStatus.ABORTED:
                self.metrics.snapshot_ended(aborted=notification.type is SnapshotStatus.ABORTED)


@contextmanager
def connected(meter: Meter, tables: Iterable[str]) -> Iterator[None]:
    """Marks the stream as connected while the context is open."""
    meter.metrics.connected(tables)
    try:
        yield
    finally:
        meter.metrics.disconnected()
