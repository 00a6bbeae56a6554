"""The channel ``kafka`` of signals: the topic, opened with the connector's options, and what its records say."""

from __future__ import annotations

import logging

from cdc_core.errors import ConfigError
from cdc_core.events.kafka.options import KafkaOptions
from cdc_core.events.kafka.settings import consumer_settings
from cdc_core.events.kafka.signals import SignalTopic
from cdc_core.postgres import Finding, bad, doubtful, good
from cdc_core.snapshot import MalformedSignalError, Signal, SignalOptions, read_line

_log = logging.getLogger(__name__)


class KafkaChannel:
    """A ``Channel`` over a topic; records that are no signals are logged and left out. Raises ConfigError.

    ``prefix`` is the connector's ``topic.prefix``, ``kafka`` has the brokers if ``signals`` has none.
    """

    def __init__(self, signals: SignalOptions, kafka: KafkaOptions, prefix: str) -> None:
        self._topic = _topic(signals, kafka, prefix)

    def take(self) -> list[Signal]:
        """Return new signals."""
        signals = []
        for text in self._topic.take():
            try:
                signals.append(read_line(text))
            except MalformedSignalError as error:
                _log.warning("A record of the topic of signals is skipped: %s.", error)
        return signals

    def done(self) -> None:
        """Store that the signals have been processed."""
        self._topic.done()

    def close(self) -> None:
        """Close the consumer, of a channel that was only tried."""
        self._topic.close()

    @classmethod
    def findings(cls, signals: SignalOptions, kafka: KafkaOptions, prefix: str) -> list[Finding]:
        """Whether the topic can be read; a warning if it does not exist, or the brokers do not answer."""
        try:
            topic = _topic(signals, kafka, prefix)
        except ConfigError as error:
            return [bad("signals", error.message, error.remedy)]
        try:
            problem = topic.examine()
        finally:
            topic.close()
        if problem:
            return [doubtful("signals", problem, "A run goes on without the channel kafka, and tries again.")]
        return [good("signals", f"The topic {topic.name} can be read.")]


def _topic(signals: SignalOptions, kafka: KafkaOptions, prefix: str) -> SignalTopic:
    own = dict(signals.signal_consumer)
    own_servers = signals.signal_kafka_bootstrap_servers.strip() or own.pop("bootstrap.servers", "").strip()
    if not own_servers and not kafka.bootstrap_servers and "bootstrap.servers" not in dict(kafka.producer):
        raise ConfigError("signal.kafka.bootstrap.servers is missing: signal.enabled.channels contains kafka.")
    return SignalTopic(
        consumer_settings(kafka, "signal.consumer", own, own_servers),
        signals.signal_kafka_topic or f"{prefix}-signal",
        signals.signal_kafka_group_id or f"kafka-signal-{prefix}",
        prefix,
        signals.signal_kafka_poll_timeout_ms / 1000,
    )
