"""Kafka as one connector's output: opened with the connector's options, and told its notifications."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.events import envelope_context, event_stream
from cdc_core.events import (
    EnvelopeContext,
    ErrorTolerance,
    EventOutlet,
    EventStream,
    KafkaOutput,
    NotificationRecords,
    RecordsOwner,
    TextHeaders,
    open_publisher,
)
from cdc_core.postgres import Source
from cdc_core.snapshot import Notification, Notifier, OnNotification


@contextmanager
def opened_events(
    context: RunContext, on_notification: OnNotification | None, *, beside_lake: bool = False
) -> Iterator[tuple[EventStream, Source]]:
    """Open source and Kafka for a run of events. Raises ConfigError, BrokerError, SourceError, TransientError.

    ``beside_lake`` as in EventStream: the run into the lake has claimed the slot.
    """
    context.config.require_carried()
    outlet = context.config.outlet(is_raw=True)
    if outlet is not None:
        outlet.reach()
    records = envelope_context(context, outlet)
    with (
        context.source() if beside_lake else context.claimed(writes_tables=False) as source,
        _output(context, source, records, outlet, on_notification) as (output, notifier),
    ):
        stream = event_stream(context, source, records, output, notifier, beside_lake=beside_lake, is_apart=True)
        yield stream, source


@contextmanager
def _output(
    context: RunContext,
    source: Source,
    records: EnvelopeContext,
    outlet: EventOutlet | None,
    on_notification: OnNotification | None,
) -> Iterator[tuple[KafkaOutput, Notifier]]:
    """Open Kafka; yields the output and the notifier of the run."""
    config = context.config
    connector = RecordsOwner(
        context.name,
        context.slot,
        headers_are_texts=outlet is not None and isinstance(outlet.headers, TextHeaders),
        leaves_out=config.transforms.errors_tolerance is ErrorTolerance.ALL,
    )
    with open_publisher(config.kafka, connector) as (publisher, stored):
        output = KafkaOutput(publisher, stored, context.slot, source.system_id())
        yield output, _notifier(context, records, output, on_notification)


def _notifier(
    context: RunContext, records: EnvelopeContext, output: KafkaOutput, listener: OnNotification | None
) -> Notifier:
    signals = context.config.signals
    channels, topic = signals.notification_enabled_channels, signals.notification_sink_topic_name
    if len(context.destinations) > 1:
        # The run that reads the slot has logged its own.
        channels = tuple(channel for channel in channels if channel != "log")
    if "sink" not in channels or not topic:
        return Notifier(context.name, channels, listener)
    made = NotificationRecords(records, topic)

    def both(one: Notification) -> None:
        output.add(made.make(one.id, one.aggregate_type, one.type.value, one.additional_data, one.timestamp_ms))
        if listener is not None:
            listener(one)

    return Notifier(context.name, channels, both)
