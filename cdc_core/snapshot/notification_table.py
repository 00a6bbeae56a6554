"""The notification channel ``sink``: a Delta table of the lake, written in a separate thread.

The thread that reads the stream must not wait for a commit, so notifications are written in groups, with at most one
commit per second. Notifications of the last second before the process is killed may be missing.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from cdc_core.connector_threads import ConnectorThread
from cdc_core.lake import NotificationLog, NotificationRow
from cdc_core.snapshot.notifications import Notification, Notifier, OnNotification

_log = logging.getLogger(__name__)

_EVERY_SECONDS = 1.0
_CLOSE_SECONDS = 30.0
# If the lake cannot be written to for a long time, the oldest notifications are dropped.
_MAX_WAITING = 10_000


class NotificationTable:
    """Writes notifications to the table at ``path``. ``add`` may be called from any thread."""

    def __init__(self, path: str, history_minutes: int) -> None:
        self._log = NotificationLog(path, history_minutes)
        self._waiting: deque[Notification] = deque(maxlen=_MAX_WAITING)
        self._lock = threading.Lock()
        self._has_some = threading.Event()
        self._is_closed = threading.Event()
        self._thread = ConnectorThread(target=self._work, name="notifications", daemon=True)
        self._thread.start()

    def add(self, notification: Notification) -> None:
        """Add a notification to be written."""
        with self._lock:
            self._waiting.append(notification)
        self._has_some.set()

    def close(self) -> None:
        """Write the waiting notifications, for at most _CLOSE_SECONDS; a failure is logged."""
        self._is_closed.set()
        self._has_some.set()
        self._thread.join(_CLOSE_SECONDS)
        if self._waiting:
            _log.warning("%d notifications could not be written to %s.", len(self._waiting), self._log.path)

    def _work(self) -> None:
        while True:
            self._has_some.wait()
            self._has_some.clear()
            is_last = self._is_closed.is_set()
            is_written = self._write()
            if is_last:
                return
            if not is_written:
                self._has_some.set()
            self._is_closed.wait(_EVERY_SECONDS)

    def _write(self) -> bool:
        with self._lock:
            chosen = list(self._waiting)
        if not chosen:
            return True
        try:
            self._log.add([_row(notification) for notification in chosen])
        except Exception as error:
            # Snapshots continue without them.
            _log.warning("Notifications could not be written to %s (%s).", self._log.path, type(error).__name__)
            return False
        with self._lock:
            written = {notification.id for notification in chosen}
            self._waiting = deque(
                (notification for notification in self._waiting if notification.id not in written), _MAX_WAITING
            )
        return True


def _row(notification: Notification) -> NotificationRow:
    at = datetime.fromtimestamp(notification.timestamp_ms / 1000, UTC)
    return NotificationRow(
        notification.id, notification.aggregate_type, notification.type.value, dict(notification.additional_data), at
    )


@contextmanager
def opened_notifier(
    name: str, channels: tuple[str, ...], listener: OnNotification | None, path: str, history_minutes: int
) -> Iterator[Notifier]:
    """Open the notifier of a run; pending notifications of the channel ``sink`` are written to ``path`` at the end.

    ``name`` is ``topic.prefix``, ``path`` empty for a run without a lake.
    """
    if "sink" not in channels or not path:
        yield Notifier(name, channels, listener)
        return
    table = NotificationTable(path, history_minutes)

    def both(notification: Notification) -> None:
        table.add(notification)
        if listener is not None:
            listener(notification)

    try:
        yield Notifier(name, channels, both)
    finally:
        table.close()
