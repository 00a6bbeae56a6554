"""A connector's events into Kafka: the initial snapshot, and the stream of a run without a lake."""

from __future__ import annotations

import logging

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.kafka import opened_events
from cdc_core.assemble.metrics import connected, meter
from cdc_core.assemble.notifications import OnNotification
from cdc_core.assemble.table_snapshots import OnProgress
from cdc_core.engine.reports import StreamReport, Until
from cdc_core.engine.stream.run import Hooks
from cdc_core.errors import TransientError
from cdc_core.snapshot.signals.channels import Inbox

_log = logging.getLogger(__name__)


def initial_events(
    context: RunContext, on_notification: OnNotification | None, on_progress: OnProgress | None = None
) -> int:
    """Write the rows that the snapshot mode requires to Kafka; returns their number. Creates the slot.

    With a lake whose slot exists, brokers that do not answer are no error: the lake goes on.
    """
    metered = meter(context)
    try:
        with opened_events(context, metered.notification(on_notification)) as (events, _):
            events.tell(on_progress=metered.progress(on_progress))
            return events.snapshot()
    except TransientError as error:
        if not (context.has_lake and _has_slot(context)):
            raise
        # An interrupted snapshot is not forgotten: no event of the stream is written before it is taken.
        _log.warning("The lake goes on without Kafka: %s", error)
        return 0


def first_events(context: RunContext, on_notification: OnNotification | None) -> None:
    """As ``initial_events``, unless the slot exists: before anything else makes it, which Kafka would begin behind."""
    if not _has_slot(context):
        initial_events(context, on_notification)


def stream_events(
    context: RunContext,
    until: Until,
    hooks: Hooks,
    inbox: Inbox | None,
    on_notification: OnNotification | None,
) -> StreamReport:
    """Write the stream's records to Kafka until a bound is reached; they are acknowledged by then."""
    metered = meter(context)
    with (
        opened_events(context, metered.notification(on_notification)) as (events, source),
        connected(metered, [str(table.id) for table in events.tables]),
    ):
        metered.follow(events.seen, lambda: events.waiting)
        events.tell(on_progress=metered.progress(None), on_batch=metered.hooks(hooks).on_batch)
        if hooks.on_start is not None:
            hooks.on_start()
        report = events.stream(until, hooks.should_stop, inbox)
        if report.stopped_by != "time":
            source.drop_on_stop()
        return report


def _has_slot(context: RunContext) -> bool:
    with context.source() as source:
        return source.slot().exists
