"""Notifications of snapshots as observations of the snapshot asset, logged by the run that takes the snapshot."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import dagster as dg

from cdc_core.snapshot import Notification, SnapshotStatus
from wal2lake.pipelines.connector.keys import snapshot_key
from wal2lake.pipelines.connector.site import Site

PER_MINUTE = 30
# Interval for one table's progress, which is reported chunk by chunk.
PROGRESS_SECONDS = 30.0
_MAX_WAITING = 1000
# The fields with the table of a notification.
_TABLE_FIELDS = ("scanned_collection", "current_collection_in_progress")


class Budget:
    """Limits the number of uses in any minute to ``per_minute``."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = per_minute
        self._now = clock
        self._used: deque[float] = deque()

    def take(self) -> bool:
        """Count one use; returns False if the limit is reached."""
        now = self._now()
        while self._used and now - self._used[0] >= 60.0:
            self._used.popleft()
        if len(self._used) >= self._most:
            return False
        self._used.append(now)
        return True


class NotificationEvents:
    """Collects notifications from the engine's threads; the step's thread logs them as events.

    At most ``PER_MINUTE`` are logged per minute, in their order; others are delayed. Progress is logged for each table
    at intervals and dropped otherwise.
    """

    def __init__(self, site: Site, clock: Callable[[], float] = time.monotonic) -> None:
        self._site = site
        self._now = clock
        self._budget = Budget(PER_MINUTE, clock)
        self._lock = threading.Lock()
        self._waiting: deque[Notification] = deque(maxlen=_MAX_WAITING)
        self._progress: dict[str, float] = {}

    def listen(self, notification: Notification) -> None:
        """Called by the engine, in any thread."""
        with self._lock:
            if notification.type is SnapshotStatus.IN_PROGRESS:
                table, now = table_of(notification) or "", self._now()
                if now - self._progress.get(table, float("-inf")) < PROGRESS_SECONDS:
                    return
                self._progress[table] = now
            self._waiting.append(notification)

    def due(self, *, is_last: bool = False) -> list[dg.AssetObservation]:
        """Observations that are due; at the end of a run all remaining ones."""
        observations = []
        with self._lock:
            while self._waiting and (is_last or self._budget.take()):
                observations.append(self._observation(self._waiting.popleft()))
        return observations

    def _observation(self, notification: Notification) -> dg.AssetObservation:
        table = table_of(notification)
        told = {name: value for name, value in notification.additional_data.items() if name != "connector_name"}
        return dg.AssetObservation(
            asset_key=snapshot_key(self._site),
            partition=table,
            description=sentence(notification),
            metadata={
                "notification": f"{notification.aggregate_type}: {notification.type.value}",
                **{name: int(value) if value.isdecimal() else value for name, value in told.items()},
                "notified_at": dg.MetadataValue.timestamp(notification.timestamp_ms / 1000),
            },
        )


def table_of(notification: Notification) -> str | None:
    """The table of the notification, None if it is about the whole snapshot."""
    data = notification.additional_data
    return next((data[name] for name in _TABLE_FIELDS if data.get(name)), None)


def sentence(notification: Notification) -> str:
    """The notification as text: ``Incremental snapshot of public.orders: completed``."""
    about = table_of(notification) or notification.additional_data.get("data_collections", "").replace(",", ", ")
    subject = notification.aggregate_type.capitalize() + (f" of {about}" if about else "")
    status = notification.additional_data.get("status", "")
    return f"{subject}: {notification.type.value.lower().replace('_', ' ')}" + (f" ({status})" if status else "")
