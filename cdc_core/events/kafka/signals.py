"""The topic of signals: its records are read while a connector runs.

The record's key must be the connector's ``topic.prefix``; its value is a JSON object with the signal's type and data.
All partitions are read, by this connector alone: a group's offsets are used to continue, not to divide the partitions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from cdc_core.events.kafka.client import Reported, open_consumer

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 5.0
_ASK_SECONDS = 5.0
_MOST = 100


class SignalTopic:
    """For one thread. ``interval_seconds``: time between polls. Without a broker there are no signals."""

    def __init__(
        self,
        settings: Mapping[str, str],
        topic: str,
        group: str,
        key: str,
        interval_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        own = {"group.id": group, "enable.auto.commit": "false", "auto.offset.reset": "earliest"}
        self._reported = Reported(settings.get("bootstrap.servers", ""))
        self._consumer: Consumer = open_consumer({**own, **settings}, self._reported)
        self.name = topic
        self._key = key.encode()
        self._interval = interval_seconds
        self._clock = clock
        self._due = float("-inf")
        self._is_assigned = False
        self._read: dict[int, int] = {}

    def take(self) -> list[str]:
        """Return the values of new records with the connector's key; none before the interval is over."""
        if self._read or self._clock() < self._due:
            return []
        if not self._is_assigned and not self._assign():
            self._due = self._clock() + _RETRY_SECONDS
            return []
        texts = []
        for message in self._consumer.consume(_MOST, timeout=self._interval):
            if message.error() is not None:
                _log.warning("The topic of signals %s cannot be read: %s; retrying.", self.name, message.error().str())
                continue
            self._read[message.partition()] = message.offset() + 1
            if message.key() != self._key:
                _log.debug("A record of topic %s has another key than this connector's topic.prefix.", self.name)
            elif message.value() is not None:
                texts.append(message.value().decode("utf-8", errors="replace"))
        self._due = self._clock() + self._interval
        return texts

    def done(self) -> None:
        """Store that the records returned by ``take`` have been processed."""
        from confluent_kafka import KafkaException

        if not self._read:
            return
        try:
            self._consumer.commit(offsets=self._partitions(self._read), asynchronous=False)
        except KafkaException as error:
            _log.warning("The offsets of the topic of signals were not stored (%s).", error.args[0].str())
        self._read = {}

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def examine(self) -> str:
        """Return why the topic cannot be read, "" if it can; its offsets stay."""
        found = self._partition_ids()
        return found if isinstance(found, str) else ""

    def _partition_ids(self) -> list[int] | str:
        """Return the topic's partitions, or why they are not known."""
        from confluent_kafka import KafkaException

        try:
            known = self._consumer.list_topics(self.name, timeout=_ASK_SECONDS).topics[self.name]
        except KafkaException as error:
            return f"The topic of signals {self.name} cannot be read ({error.args[0].str()})."
        if known.error is not None or not known.partitions:
            said = f" ({known.error.str().rstrip('.')})" if known.error is not None else ""
            return f"The topic of signals {self.name} does not exist yet{said}."
        return list(known.partitions)

    def _assign(self) -> bool:
        from confluent_kafka import KafkaException

        ids = self._partition_ids()
        if isinstance(ids, str):
            _log.warning("%s Retrying.", ids)
            return False
        try:
            parts = self._partitions(dict.fromkeys(ids, 0))
            self._consumer.assign(self._consumer.committed(parts, timeout=_ASK_SECONDS))
        except KafkaException as error:
            _log.warning("The topic of signals %s cannot be read (%s). Retrying.", self.name, error.args[0].str())
            return False
        self._is_assigned = True
        return True

    def _partitions(self, offsets: Mapping[int, int]) -> list[TopicPartition]:
        from confluent_kafka import TopicPartition

        return [TopicPartition(self.name, partition, offset) for partition, offset in offsets.items()]
