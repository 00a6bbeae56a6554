"""Whether the brokers answer and accept the connector's client, and which of its topics exist. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cdc_core.events.kafka import settings as java
from cdc_core.events.kafka.client import Reported, open_admin, open_producer
from cdc_core.events.kafka.opening import position_of
from cdc_core.events.kafka.options import KafkaOptions
from cdc_core.events.kafka.topic_maker import TopicMaker
from cdc_core.events.kafka.topics import TopicRules

_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class KafkaFacts:
    """``brokers``: their number. ``missing``: topics that do not exist. ``creates``: the connector creates them."""

    servers: str
    brokers: int
    missing: tuple[str, ...]
    creates: bool


def examine(options: KafkaOptions, topics: Iterable[str]) -> KafkaFacts:
    """Ask the brokers. Raises ConfigError, BrokerError or TransientError."""
    servers, rules = java.servers(options), TopicRules(options.topic_creation)
    reported = Reported(servers)
    rules.check()
    # Creating a producer, which writes nothing, verifies that every setting exists.
    open_producer(java.producer_settings(options), reported)
    maker = TopicMaker(open_admin(java.admin_settings(options), reported), rules, servers, reported)
    known = maker.known(_SECONDS)
    missing = tuple(sorted(set(topics) - set(known.topics)))
    return KafkaFacts(servers, len(known.brokers), missing, rules.creates)


def stored_position(options: KafkaOptions, prefix: str, slot: str) -> tuple[str, str]:
    """Return the connector's topic of positions, and its last one (empty for none). Raises CdcError."""
    servers = java.servers(options)
    reported = Reported(servers)
    maker = TopicMaker(
        open_admin(java.admin_settings(options), reported), TopicRules(options.topic_creation), servers, reported
    )
    positions = position_of(options, prefix, slot)
    if positions.name not in maker.known(_SECONDS).topics:
        return positions.name, ""
    return positions.name, positions.read(java.consumer_settings(options), servers)
