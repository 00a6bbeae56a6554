"""Change events as Debezium's records, and their destinations: JSON lines and Kafka.

A run into the lake only imports the options from here; no module of the lake imports this package.

Options       ``EnvelopeOptions``, ``FormatOptions``, ``TransformOptions`` (``ErrorTolerance``) and ``KafkaOptions``
              (``TopicRules``); ``producer_settings`` and ``admin_settings`` are librdkafka's.
Records       ``EnvelopeContext`` is what all records of a connector share, ``NotificationRecords`` are those of
              notifications. ``make_chain`` builds the chain of Connect's transforms, ``make_outlet`` the transforms
              and converters of a destination (``EventOutlet``, ``TextHeaders``); ``routing_of`` is the topic of a
              record.
Destinations  An ``Output`` stores a position with its records. ``EnvelopeOutput`` writes JSON lines. ``open_publisher``
              (for a ``RecordsOwner``) and ``KafkaOutput`` write to Kafka; ``KafkaPosition`` is the position there
              between two runs, ``kafka_findings`` and ``kafka_status`` are what commands say of it. ``KafkaChannel``
              receives signals.
Offsets       ``stored_offset`` reads Connect's offset from its ``OffsetPlace`` (``FILE_SETTING``), ``OffsetInSlot``
              says whether a slot goes on from it.
Runs          ``EventStream`` writes a snapshot and then the stream of a slot, or of ``SharedSegments``, with the chunks
              that signals request in between; it is made of ``EventSettings`` and an ``EventStart``. ``EventFeed`` and
              ``ConfirmationGate`` write events while a run into the lake reads the same slot. ``SegmentCounter`` and
              ``TableRows`` count its changes by transaction.

An output reports a position as durable only after every record before it is durable: files are synced, Kafka has
acknowledged. Records may be written again after a crash, never in another order and never with a gap. An output has
one writer thread; a chain is used by one thread.

Not behind this door: reading the slot (``cdc_core.engine``), and types of values (``cdc_core.types``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.events.envelope.context import EnvelopeContext as EnvelopeContext
    from cdc_core.events.envelope.notification_event import NotificationRecords as NotificationRecords
    from cdc_core.events.envelope.options import EnvelopeOptions as EnvelopeOptions
    from cdc_core.events.envelope.routing import routing_of as routing_of
    from cdc_core.events.envelope.segment_counts import SegmentCounter as SegmentCounter
    from cdc_core.events.format.options import FormatOptions as FormatOptions
    from cdc_core.events.format.outlet import EventOutlet as EventOutlet
    from cdc_core.events.format.outlet import make_outlet as make_outlet
    from cdc_core.events.format.plain import TextHeaders as TextHeaders
    from cdc_core.events.kafka.opening import RecordsOwner as RecordsOwner
    from cdc_core.events.kafka.opening import open_publisher as open_publisher
    from cdc_core.events.kafka.options import KafkaOptions as KafkaOptions
    from cdc_core.events.kafka.settings import admin_settings as admin_settings
    from cdc_core.events.kafka.settings import producer_settings as producer_settings
    from cdc_core.events.kafka.signal_channel import KafkaChannel as KafkaChannel
    from cdc_core.events.kafka.status import kafka_findings as kafka_findings
    from cdc_core.events.kafka.status import kafka_status as kafka_status
    from cdc_core.events.kafka.stored_offset import FILE_SETTING as FILE_SETTING
    from cdc_core.events.kafka.stored_offset import OffsetPlace as OffsetPlace
    from cdc_core.events.kafka.stored_offset import stored_offset as stored_offset
    from cdc_core.events.kafka.topics import TopicRules as TopicRules
    from cdc_core.events.stream.event_settings import EventSettings as EventSettings
    from cdc_core.events.stream.event_stream import EventStart as EventStart
    from cdc_core.events.stream.event_stream import EventStream as EventStream
    from cdc_core.events.stream.feed import ConfirmationGate as ConfirmationGate
    from cdc_core.events.stream.feed import EventFeed as EventFeed
    from cdc_core.events.stream.kafka_output import KafkaOutput as KafkaOutput
    from cdc_core.events.stream.offset_in_slot import OffsetInSlot as OffsetInSlot
    from cdc_core.events.stream.output import EnvelopeOutput as EnvelopeOutput
    from cdc_core.events.stream.output import Output as Output
    from cdc_core.events.stream.segments import SharedSegments as SharedSegments
    from cdc_core.events.stream.table_rows import TableRows as TableRows
    from cdc_core.events.stream.takeover import KafkaPosition as KafkaPosition
    from cdc_core.events.transform.chain import make_chain as make_chain
    from cdc_core.events.transform.options import ErrorTolerance as ErrorTolerance
    from cdc_core.events.transform.options import TransformOptions as TransformOptions

lazily(
    __name__,
    {
        "ConfirmationGate": "stream.feed",
        "EnvelopeContext": "envelope.context",
        "EnvelopeOptions": "envelope.options",
        "EnvelopeOutput": "stream.output",
        "ErrorTolerance": "transform.options",
        "EventFeed": "stream.feed",
        "EventOutlet": "format.outlet",
        "EventSettings": "stream.event_settings",
        "EventStart": "stream.event_stream",
        "EventStream": "stream.event_stream",
        "FILE_SETTING": "kafka.stored_offset",
        "FormatOptions": "format.options",
        "KafkaChannel": "kafka.signal_channel",
        "KafkaOptions": "kafka.options",
        "KafkaOutput": "stream.kafka_output",
        "KafkaPosition": "stream.takeover",
        "NotificationRecords": "envelope.notification_event",
        "OffsetInSlot": "stream.offset_in_slot",
        "OffsetPlace": "kafka.stored_offset",
        "Output": "stream.output",
        "RecordsOwner": "kafka.opening",
        "SegmentCounter": "envelope.segment_counts",
        "SharedSegments": "stream.segments",
        "TableRows": "stream.table_rows",
        "TextHeaders": "format.plain",
        "TopicRules": "kafka.topics",
        "TransformOptions": "transform.options",
        "admin_settings": "kafka.settings",
        "kafka_findings": "kafka.status",
        "kafka_status": "kafka.status",
        "make_chain": "transform.chain",
        "make_outlet": "format.outlet",
        "open_publisher": "kafka.opening",
        "producer_settings": "kafka.settings",
        "routing_of": "envelope.routing",
        "stored_offset": "kafka.stored_offset",
    },
)
