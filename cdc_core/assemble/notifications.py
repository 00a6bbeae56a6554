"""What observes one operation: its notifications, its metrics, and the caller's progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.metrics import meter
from cdc_core.schema import TableId
from cdc_core.snapshot import Notifier, OnNotification, OnProgress, notify_of_snapshot, opened_notifier


def open_notifier(context: RunContext, listener: OnNotification | None) -> AbstractContextManager[Notifier]:
    """The notifier of a run into the lake; pending notifications of the channel ``sink`` are written at the end."""
    channels, lake = context.config.signals.notification_enabled_channels, context.lake
    path = lake.paths.notifications if lake.options.lake_path else ""
    return opened_notifier(context.name, channels, listener, path, lake.options.lake_history_minutes)


def observed(
    context: RunContext, on_progress: OnProgress | None, on_notification: OnNotification | None
) -> Callable[[Sequence[TableId]], AbstractContextManager[OnProgress]]:
    """What observes a snapshot of tables into the lake."""
    metered = meter(context)

    @contextmanager
    def opened(tables: Sequence[TableId]) -> Iterator[OnProgress]:
        with (
            open_notifier(context, metered.notification(on_notification)) as notifier,
            notify_of_snapshot(notifier, tables, metered.progress(on_progress)) as listen,
        ):
            yield listen

    return opened
