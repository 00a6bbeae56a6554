"""Signals of a Kafka topic, configured from the connector's options."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cdc_core.assemble.signal_topic import signal_topic
from cdc_core.config import ConnectorConfig
from cdc_core.snapshot import MalformedSignalError, Signal, read_line

if TYPE_CHECKING:
    from cdc_core.events import SignalTopic

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


def kafka_channel(config: ConnectorConfig) -> KafkaChannel:
    """Open the channel ``kafka``. Raises ConfigError."""
    return KafkaChannel(signal_topic(config))
