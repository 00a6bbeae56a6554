"""Opens a connector's Kafka output: producer, topics, and the position that the last run stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_core.events.kafka import settings as java
from cdc_core.events.kafka.client import REACH_SECONDS, Reported, error_of, open_admin, open_producer
from cdc_core.events.kafka.delivery import Delivery, DeliverySettings
from cdc_core.events.kafka.messages import Messages
from cdc_core.events.kafka.options import ExactlyOnce, KafkaOptions
from cdc_core.events.kafka.positions import PositionTopic, position_topic
from cdc_core.events.kafka.publisher import Publisher
from cdc_core.events.kafka.topic_maker import TopicMaker
from cdc_core.events.kafka.topics import TopicRules

if TYPE_CHECKING:
    from confluent_kafka import Producer

# librdkafka's default.
_BATCH_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class RecordsOwner:
    """Whose records they are. ``headers_are_texts``, ``leaves_out``: as in ``Messages`` and ``PublisherSettings``."""

    prefix: str
    slot: str
    headers_are_texts: bool = False
    leaves_out: bool = False


@contextmanager
def open_publisher(options: KafkaOptions, connector: RecordsOwner) -> Iterator[tuple[Publisher, str]]:
    """Open Kafka; yields the publisher, and the last position (empty for none). Raises CdcError.

    With exactly.once.support=required an unfinished transaction of an earlier run is aborted first.
    """
    servers, reported = java.servers(options), Reported(java.servers(options))
    is_transactional = options.exactly_once_support is ExactlyOnce.REQUIRED
    own_id = java.transactional_id(connector.prefix, connector.slot) if is_transactional else ""
    settings = java.producer_settings(options, own_id)
    rules = TopicRules(options.topic_creation)
    rules.check()
    topics = TopicMaker(open_admin(java.admin_settings(options), reported), rules, servers, reported)
    positions = position_of(options, connector.prefix, connector.slot)
    positions.make(topics)
    settings["batch.size"] = str(_batch_size(settings, topics, rules, connector.prefix))
    producer = open_producer(settings, reported)
    if is_transactional:
        _init_transactions(producer, servers, reported)
    if options.offsets_storage_topic:
        positions.await_others(java.consumer_settings(options), servers)
    stored = positions.read(java.consumer_settings(options), servers)
    seconds = options.kafka_stall_timeout_ms / 1000
    most = int(settings["queue.buffering.max.messages"])
    made = DeliverySettings(servers, seconds, is_transactional, connector.leaves_out, most)
    messages = Messages(are_texts=connector.headers_are_texts)
    publisher = Publisher(Delivery(producer, made, positions, topics, messages, reported))
    try:
        yield publisher, stored
    finally:
        publisher.close()


def _batch_size(settings: dict[str, str], topics: TopicMaker, rules: TopicRules, prefix: str) -> int:
    """Return the largest batch that all topics of the connector take.

    A broker refuses a batch as a whole, and librdkafka does not divide it, as Java's producer does. A record that is
    larger than a batch is sent alone.
    """
    own = [name for name in topics.existing() if name.startswith(f"{prefix}.")]
    limits = [*topics.limits(own).values(), rules.least_limit or _BATCH_BYTES]
    given = settings.get("batch.size", "")
    return max(1, min(int(given) if given.isdecimal() else _BATCH_BYTES, *limits))


def position_of(options: KafkaOptions, prefix: str, slot: str) -> PositionTopic:
    """Return the topic of a connector's positions."""
    most = int(java.producer_settings(options)["message.max.bytes"])
    return position_topic(options.offsets_storage_topic, prefix, slot, most)


def _init_transactions(producer: Producer, servers: str, reported: Reported) -> None:
    from confluent_kafka import KafkaException

    try:
        producer.init_transactions(REACH_SECONDS)
    except KafkaException as error:
        if error.args[0].name() == "_TIMED_OUT":
            raise reported.unreachable(REACH_SECONDS) from None
        raise error_of(error.args[0], servers, "beginning transactions") from None
