"""Signals of a Kafka topic, configured from the connector's options."""

from __future__ import annotations

import logging

from cdc_core.assemble.context import RunContext
from cdc_core.errors import ConfigError
from cdc_core.kafka.settings import consumer_settings
from cdc_core.kafka.signals import SignalTopic
from cdc_core.snapshot.signals.parse import MalformedSignalError, Signal, read_line

_log = logging.getLogger(__name__)


class KafkaChannel:
    """A ``Channel`` over a topic; records that are no signals are logged and left out."""

    def __init__(self, topic: SignalTopic) -> None:
        self._topic = topic

    def take(self) -> list[Signal]:
        """Return new signals."""
        found = []
        for text in self._topic.take():
            try:
                found.append(read_line(text))
            except MalformedSignalError as error:
                _log.warning("A record of the topic of signals is skipped: %s.", error)
        return found

    def done(self) -> None:
        """Store that the signals have been processed."""
        self._topic.done()


def kafka_channel(context: RunContext) -> KafkaChannel:
    """Open the channel ``kafka``. Raises ConfigError."""
    signals = context.config.signals
    given = dict(signals.signal_consumer)
    own_servers = signals.signal_kafka_bootstrap_servers.strip() or given.pop("bootstrap.servers", "").strip()
    kafka = context.config.kafka
    if not own_servers and not kafka.bootstrap_servers and "bootstrap.servers" not in dict(kafka.producer):
        raise ConfigError("signal.kafka.bootstrap.servers is missing: signal.enabled.channels contains kafka.")
    settings = consumer_settings(kafka, "signal.consumer", given, own_servers)
    topic = SignalTopic(
        settings,
        signals.signal_kafka_topic or f"{context.name}-signal",
        signals.signal_kafka_group_id or f"kafka-signal-{context.name}",
        context.name,
        signals.signal_kafka_poll_timeout_ms / 1000,
    )
    return KafkaChannel(topic)
