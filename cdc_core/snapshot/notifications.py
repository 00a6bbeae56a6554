"""Notifications of snapshots: start, progress and end, as one record each.

Unlike Debezium's notifications, they do not contain keys of tables, which are row values.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from cdc_core import clock
from cdc_core.schema import TableId
from cdc_core.snapshot.reports import SnapshotProgress

_log = logging.getLogger(__name__)

INITIAL = "Initial Snapshot"
INCREMENTAL = "Incremental Snapshot"
BLOCKING = "Blocking Snapshot"

_PROGRESS_SECONDS = 10.0


class SnapshotStatus(StrEnum):
    """Status of a snapshot, Debezium's notification types."""

    STARTED = "STARTED"
    IN_PROGRESS = "IN_PROGRESS"
    TABLE_SCAN_COMPLETED = "TABLE_SCAN_COMPLETED"
    PAUSED = "PAUSED"
    RESUMED = "RESUMED"
    ABORTED = "ABORTED"
    COMPLETED = "COMPLETED"


class ScanStatus(StrEnum):
    """Result of reading one table, Debezium's ``status`` of a table scan."""

    SUCCEEDED = "SUCCEEDED"
    EMPTY = "EMPTY"
    NO_PRIMARY_KEY = "NO_PRIMARY_KEY"
    SKIPPED = "SKIPPED"
    SQL_EXCEPTION = "SQL_EXCEPTION"
    UNKNOWN_SCHEMA = "UNKNOWN_SCHEMA"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class Notification:
    """One record. ``timestamp_ms``: milliseconds since 1970-01-01T00:00:00Z."""

    aggregate_type: str
    type: SnapshotStatus
    additional_data: Mapping[str, str]
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    timestamp_ms: int = field(default_factory=lambda: clock.now_ns() // 1_000_000)


OnNotification = Callable[[Notification], None]


class Notifier:
    """Sends one connector's notifications to the channels of ``notification.enabled.channels`` and to ``listener``."""

    def __init__(self, connector: str, channels: tuple[str, ...], listener: OnNotification | None = None) -> None:
        self._connector = connector
        self._channels = channels
        self._listener = listener

    def initial(self, status_type: SnapshotStatus, **data: object) -> None:
        """Notify of an initial snapshot."""
        self.notify(INITIAL, status_type, **data)

    def incremental(self, status_type: SnapshotStatus, **data: object) -> None:
        """Notify of an incremental snapshot."""
        self.notify(INCREMENTAL, status_type, **data)

    def blocking(self, status_type: SnapshotStatus, **data: object) -> None:
        """Notify of a blocking snapshot."""
        self.notify(BLOCKING, status_type, **data)

    def notify(self, aggregate: str, status_type: SnapshotStatus, **data: object) -> None:
        """Create and send a notification. ``data``: names with underscores; values are written as text."""
        texts = {"connector_name": self._connector, **{name: str(value) for name, value in data.items()}}
        made = Notification(aggregate, status_type, texts)
        if "log" in self._channels:
            text = ", ".join(f"{name}={value}" for name, value in texts.items())
            _log.info("%s %s: %s", aggregate, status_type.value, text)
        if self._listener is not None:
            self._listener(made)


@contextmanager
def notify_of_snapshot(
    notifier: Notifier, tables: Sequence[TableId], on_progress: Callable[[SnapshotProgress], None] | None
) -> Iterator[Callable[[SnapshotProgress], None]]:
    """Send notifications of an initial snapshot: its start, progress and end of each table, completion or abort.

    Yields the progress hook for the snapshot, which calls ``on_progress`` too. IN_PROGRESS is sent for a table at its
    start and every ten seconds.
    """
    names = ",".join(str(table) for table in tables)
    in_progress: dict[TableId, float] = {}
    rows: dict[TableId, int] = {}

    def listen(progress: SnapshotProgress) -> None:
        now = time.monotonic()
        if progress.done:
            rows[progress.table] = progress.rows
            status = ScanStatus.SUCCEEDED if progress.rows else ScanStatus.EMPTY
            notifier.notify(
                INITIAL,
                SnapshotStatus.TABLE_SCAN_COMPLETED,
                data_collections=names,
                scanned_collection=progress.table,
                total_rows_scanned=progress.rows,
                status=status.value,
            )
        elif now - in_progress.get(progress.table, float("-inf")) >= _PROGRESS_SECONDS:
            in_progress[progress.table] = now
            notifier.notify(
                INITIAL,
                SnapshotStatus.IN_PROGRESS,
                data_collections=names,
                current_collection_in_progress=progress.table,
            )
        if on_progress is not None:
            on_progress(progress)

    notifier.notify(INITIAL, SnapshotStatus.STARTED, data_collections=names)
    try:
        yield listen
    except BaseException:
        notifier.notify(INITIAL, SnapshotStatus.ABORTED, data_collections=names)
        raise
    notifier.notify(INITIAL, SnapshotStatus.COMPLETED, data_collections=names, total_rows_scanned=sum(rows.values()))
