"""Kafka as a destination: events in topics, and the position of the stream in a topic of the connector's own."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cdc_core.assemble.beside import EventsBeside
from cdc_core.assemble.context import RunContext
from cdc_core.assemble.destination import Beside, Destination, SnapshotCall, StreamCall
from cdc_core.assemble.kafka import opened_events
from cdc_core.assemble.metrics import meter
from cdc_core.assemble.signals.channels import given_channels, own_channel
from cdc_core.assemble.signals.own_file import own_signals
from cdc_core.engine import Hooks, Status, StreamReport, Until, connected
from cdc_core.errors import TransientError
from cdc_core.events import KafkaPosition, kafka_findings, kafka_status
from cdc_core.lake import record_topics
from cdc_core.lsn import Lsn
from cdc_core.offsets import SlotOffer, StreamEnd, Takeover
from cdc_core.postgres import Finding, Source
from cdc_core.schema import Names, TableId, TableSchema
from cdc_core.snapshot import Channel, Inbox, SnapshotReport

_log = logging.getLogger(__name__)


class KafkaDestination(Destination):
    """Kafka, which reads the slot, or writes beside the destination that does."""

    writes_events = True
    begins_with_slot = True

    def __init__(self, context: RunContext) -> None:
        self._context = context

    @property
    def signal_files(self) -> Sequence[Path]:
        """The file of this connector in its state folder."""
        return (own_signals(self._context.config),)

    def table_findings(self, *, is_ready: bool) -> list[Finding]:
        """Whether the brokers answer; the topics of the captured tables, if the server can be asked."""
        config, topics = self._context.config, list[str]()
        # Transforms may change topics.
        if is_ready and not config.transforms.transforms:
            with self._context.source() as source:
                topics = list(self._topics(source.tables()).values())
        return kafka_findings(config.kafka, lambda: config.outlet(is_raw=True), topics)

    def add_status(
        self, connector_status: Status, tables: Sequence[TableSchema] | None, rows: Mapping[TableId, int] | None
    ) -> Status:
        """Add the connector's position in Kafka, and the topics of the tables."""
        context = self._context
        status = kafka_status(context.config.kafka, context.name, context.slot, self._topics(tables or ()))
        return replace(connector_status, kafka=status)

    def end(self, source: Source, tables: Sequence[TableSchema], confirmed: Lsn) -> StreamEnd:
        """Where the events end."""
        return self._position(source).end(confirmed)

    def takeover(self, source: Source, tables: Sequence[TableSchema], offer: SlotOffer) -> Takeover:
        """Go on after the last event that was sent."""
        return self._position(source).takeover(offer)

    def initial_snapshot(self, call: SnapshotCall) -> list[SnapshotReport]:
        """Write the rows that the snapshot mode requires. Creates the slot. None of it is reported as a table's.

        Beside another destination whose slot exists, brokers that do not answer are no error: the other goes on.
        """
        metered, is_alone = meter(self._context), len(self._context.destinations) == 1
        try:
            with opened_events(self._context, metered.notification(call.on_notification)) as (events, _):
                events.tell(on_progress=metered.progress(call.on_progress if is_alone else None))
                events.snapshot()
        except TransientError as error:
            if is_alone or not self._context.has_slot():
                raise
            # An interrupted snapshot is not forgotten: no event of the stream is written before it is taken.
            _log.warning("The lake goes on without Kafka: %s", error)
        return []

    def stream(self, until: Until, hooks: Hooks, call: StreamCall) -> StreamReport:
        """Write the stream's records to Kafka until a bound is reached; they are acknowledged by then."""
        metered = meter(self._context)
        with (
            opened_events(self._context, metered.notification(call.on_notification)) as (events, source),
            connected(metered, [str(table.id) for table in events.tables]),
        ):
            self._context.observers.opened(events.tables)
            metered.follow(events.seen, lambda: events.waiting)
            events.tell(on_progress=metered.progress(None), on_batch=metered.hooks(hooks).on_batch)
            if hooks.on_start is not None:
                hooks.on_start()
            report = events.stream(until, hooks.should_stop, self._channels(call.inbox))
            if report.stopped_by != "time":
                source.drop_on_stop()
            return report

    def beside(self, source: Source, tables: Sequence[TableSchema]) -> Beside:
        """Write the events of the segments that the other destination's reader receives."""
        topics = self._topics([table for table in tables if source.selection.is_table(table.id)])
        paths, minutes = self._context.lake.paths, self._context.config.lake.lake_history_minutes
        record_topics(paths.topics, topics, {table: paths.lake(table) for table in topics}, minutes)
        return EventsBeside(self._context)

    def _topics(self, tables: Sequence[TableSchema]) -> dict[TableId, str]:
        """The topic of each table's events, before transforms."""
        names = Names(self._context.config.schema)
        return {table.id: names.topic(table.id) for table in tables}

    def _channels(self, inbox: Inbox | None) -> list[Channel]:
        """The channels of a run into Kafka alone, which other processes on this machine reach by its own file."""
        config = self._context.config
        is_enabled = inbox is not None and "in-process" in config.signals.signal_enabled_channels
        return [own_channel(config), *given_channels(config, holds=False), *([inbox] if inbox and is_enabled else [])]

    def _position(self, source: Source) -> KafkaPosition:
        return KafkaPosition(self._context.config.kafka, self._context.name, self._context.slot, source.system_id())
