"""A connector's events into Kafka: the initial snapshot, and the stream of a run without a lake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.events import Events, envelope_context
from cdc_core.assemble.kafka import kafka_output
from cdc_core.assemble.notifications import OnNotification
from cdc_core.engine.reports import StreamReport, Until
from cdc_core.engine.stream.run import Hooks
from cdc_core.envelope.context import EnvelopeContext
from cdc_core.postgres.source import Source
from cdc_core.snapshot.signals.channels import Inbox


def initial_events(context: RunContext, on_notification: OnNotification | None) -> int:
    """Write the rows that the snapshot mode requires to Kafka; returns their number. Creates the slot."""
    with _opened(context, on_notification) as (events, _):
        return events.snapshot()


def stream_events(
    context: RunContext,
    until: Until,
    hooks: Hooks,
    inbox: Inbox | None,
    on_notification: OnNotification | None,
) -> StreamReport:
    """Write the stream's records to Kafka until a bound is reached; they are acknowledged by then."""
    with _opened(context, on_notification) as (events, source):
        report = events.stream(until, hooks.should_stop, inbox)
        if report.stopped_by != "time":
            source.drop_on_stop()
        return report


@contextmanager
def _opened(context: RunContext, on_notification: OnNotification | None) -> Iterator[tuple[Events, Source]]:
    context.config.require_carried()
    outlet = context.config.outlet(is_raw=True)
    records: EnvelopeContext = envelope_context(context, outlet)
    with (
        context.claimed(writes_lake=context.has_lake) as source,
        kafka_output(context, source, records, outlet, on_notification) as (output, notifier),
    ):
        yield Events(context, source, records, output, notifier), source
