"""Notifications of one operation, sent to every enabled channel and to the caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cdc_core.assemble.context import RunContext
from cdc_core.snapshot import Notification, Notifier, OnNotification


@contextmanager
def open_notifier(context: RunContext, listener: OnNotification | None) -> Iterator[Notifier]:
    """The notifier of a run; pending notifications of the channel ``sink`` are written at the end."""
    channels = context.config.signals.notification_enabled_channels
    if "sink" not in channels or not context.config.lake.lake_path:
        yield Notifier(context.name, channels, listener)
        return
    from cdc_core.snapshot import NotificationTable

    table = NotificationTable(context.lake.paths.notifications, context.config.lake.lake_history_minutes)

    def both(notification: Notification) -> None:
        table.add(notification)
        if listener is not None:
            listener(notification)

    try:
        yield Notifier(context.name, channels, both)
    finally:
        table.close()
