"""Change events as Debezium's records, and their destinations: JSON lines and Kafka.

A run into the lake only imports the options from here; no module of the lake imports this package.

Options       ``EnvelopeOptions``, ``FormatOptions``, ``TransformOptions`` (``ErrorTolerance``) and ``KafkaOptions``
              (``TopicRules``); ``producer_settings``, ``consumer_settings`` and ``admin_settings`` are librdkafka's.
Records       ``EnvelopeContext`` is what all records of a connector share, ``NotificationRecords`` are those of
              notifications. ``make_chain`` builds the chain of Connect's transforms, ``make_outlet`` the transforms
              and converters of a destination (``EventOutlet``, ``TextHeaders``); ``routing_of`` is the topic of a
              record.
Destinations  An ``Output`` stores a ``Position`` with its records (``MarkedOutput``). ``EnvelopeOutput`` writes JSON
              lines. ``open_publisher`` (for a ``RecordsOwner``) and ``KafkaOutput`` write to Kafka; ``stored_position``
              and ``KafkaPosition`` are the position there between two runs. ``examine`` only tests the settings;
              ``servers`` names the brokers. ``SignalTopic`` receives signals.
Offsets       ``stored_offset`` reads Connect's offset from its ``OffsetPlace`` (``FILE_SETTING``), ``OffsetInSlot``
              says whether a slot goes on from it.
Runs          ``EnvelopeRun`` writes a snapshot (``TableRows``) and then the stream of a slot
              (``OnBatch``), with the chunks that signals request in between (``EnvelopeSignals``).
              ``EventFeed`` and ``ConfirmationGate`` write events while a run into the lake reads the same slot
              (``SharedSegments``); ``SegmentCounter`` counts its changes by transaction.

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
    from cdc_core.events.kafka.check import examine as examine
    from cdc_core.events.kafka.check import stored_position as stored_position
    from cdc_core.events.kafka.opening import RecordsOwner as RecordsOwner
    from cdc_core.events.kafka.opening import open_publisher as open_publisher
    from cdc_core.events.kafka.options import KafkaOptions as KafkaOptions
    from cdc_core.events.kafka.settings import admin_settings as admin_settings
    from cdc_core.events.kafka.settings import consumer_settings as consumer_settings
    from cdc_core.events.kafka.settings import producer_settings as producer_settings
    from cdc_core.events.kafka.settings import servers as servers
    from cdc_core.events.kafka.signals import SignalTopic as SignalTopic
    from cdc_core.events.kafka.stored_offset import FILE_SETTING as FILE_SETTING
    from cdc_core.events.kafka.stored_offset import OffsetPlace as OffsetPlace
    from cdc_core.events.kafka.stored_offset import stored_offset as stored_offset
    from cdc_core.events.kafka.topics import TopicRules as TopicRules
    from cdc_core.events.stream.acknowledged import OnBatch as OnBatch
    from cdc_core.events.stream.feed import ConfirmationGate as ConfirmationGate
    from cdc_core.events.stream.feed import EventFeed as EventFeed
    from cdc_core.events.stream.kafka_output import KafkaOutput as KafkaOutput
    from cdc_core.events.stream.marked_output import MarkedOutput as MarkedOutput
    from cdc_core.events.stream.offset_in_slot import OffsetInSlot as OffsetInSlot
    from cdc_core.events.stream.output import EnvelopeOutput as EnvelopeOutput
    from cdc_core.events.stream.output import Output as Output
    from cdc_core.events.stream.output import Position as Position
    from cdc_core.events.stream.run import EnvelopeRun as EnvelopeRun
    from cdc_core.events.stream.segments import SharedSegments as SharedSegments
    from cdc_core.events.stream.signals import EnvelopeSignals as EnvelopeSignals
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
        "EnvelopeRun": "stream.run",
        "EnvelopeSignals": "stream.signals",
        "ErrorTolerance": "transform.options",
        "EventFeed": "stream.feed",
        "EventOutlet": "format.outlet",
        "FILE_SETTING": "kafka.stored_offset",
        "FormatOptions": "format.options",
        "KafkaOptions": "kafka.options",
        "KafkaOutput": "stream.kafka_output",
        "KafkaPosition": "stream.takeover",
        "MarkedOutput": "stream.marked_output",
        "NotificationRecords": "envelope.notification_event",
        "OffsetInSlot": "stream.offset_in_slot",
        "OffsetPlace": "kafka.stored_offset",
        "OnBatch": "stream.acknowledged",
        "Output": "stream.output",
        "Position": "stream.output",
        "RecordsOwner": "kafka.opening",
        "SegmentCounter": "envelope.segment_counts",
        "SharedSegments": "stream.segments",
        "SignalTopic": "kafka.signals",
        "TableRows": "stream.table_rows",
        "TextHeaders": "format.plain",
        "TopicRules": "kafka.topics",
        "TransformOptions": "transform.options",
        "admin_settings": "kafka.settings",
        "consumer_settings": "kafka.settings",
        "examine": "kafka.check",
        "make_chain": "transform.chain",
        "make_outlet": "format.outlet",
        "open_publisher": "kafka.opening",
        "producer_settings": "kafka.settings",
        "routing_of": "envelope.routing",
        "servers": "kafka.settings",
        "stored_offset": "kafka.stored_offset",
        "stored_position": "kafka.check",
    },
)
