"""The connector's position in Kafka: the last record with its key, of a compacted topic of one partition.

Read back at the start of a run, with isolation.level=read_committed, so that a position is seen if and only if the
records before it are. The topic contains positions only, so it is read from its end: the last offsets may be marks of
transactions, which are no records.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc_core.errors import TransientError
from cdc_core.events.kafka.client import REACH_SECONDS, Reported, error_of, open_reader
from cdc_core.events.kafka.messages import NO_PARTITION, NOW, Sent
from cdc_core.events.kafka.topic_maker import TopicMaker
from cdc_core.events.kafka.topics import NewTopic

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_CONFIG = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.1"}
_FIRST_LOOK = 64
_POLL_SECONDS = 0.2
_OTHERS_SECONDS = 30.0
_BROKERS_CHOICE = -1
_NEW = frozenset(
    {
        *("_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART"),
        *("LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "_LEADER_NOT_AVAILABLE"),
    }
)


@dataclass(frozen=True, slots=True)
class PositionTopic:
    """``key`` names the connector. ``most_bytes``: the largest record that the producer sends."""

    name: str
    key: bytes
    most_bytes: int = 1_048_576

    def make(self, topics: TopicMaker) -> None:
        """Create the topic if it does not exist. Raises CdcError."""
        if self.name not in topics.existing():
            topics.create(NewTopic(self.name, 1, _BROKERS_CHOICE, _CONFIG))

    def record(self, position: str) -> Sent:
        """Return the record that stores a position."""
        return self.name, self.key, position.encode(), [], NO_PARTITION, NOW

    def await_others(self, settings: Mapping[str, str], servers: str) -> None:
        """Wait until no transaction is open in the topic: records after its begin cannot be read, positions too.

        For a topic that connectors share: one that was killed leaves its transaction open until its next start, or its
        time-out. Raises TransientError if that lasts, and CdcError.
        """
        from confluent_kafka import KafkaException

        name, deadline = f"{self.name}-reader", time.monotonic() + _OTHERS_SECONDS
        with (
            closing(open_reader(settings, name, Reported(servers))) as committed,
            closing(open_reader(settings, name, Reported(servers), isolation="read_uncommitted")) as every,
        ):
            try:
                _, end = self._bounds(every)
                while self._bounds(committed)[1] < end:
                    if time.monotonic() > deadline:
                        raise TransientError(
                            f"A transaction of another connector is open in topic {self.name}, so the positions after "
                            "its begin cannot be read.",
                            "Start that connector, or run again after its producer.transaction.timeout.ms. A connector "
                            "with an offsets.storage.topic of its own does not depend on others.",
                        )
                    time.sleep(_POLL_SECONDS)
            except KafkaException as error:
                raise error_of(error.args[0], servers, "reading the connector's position") from None

    def read(self, settings: Mapping[str, str], servers: str) -> str:
        """Return the last position, empty if there is none. Raises CdcError."""
        from confluent_kafka import KafkaException, TopicPartition

        reported = Reported(servers)
        consumer = open_reader(settings, f"{self.name}-reader", reported)
        try:
            low, high = self._bounds(consumer)
            look = _FIRST_LOOK
            while True:
                start = max(low, high - look)
                consumer.assign([TopicPartition(self.name, 0, start)])
                position = self._last(consumer, servers, reported)
                if position is not None or start == low:
                    return position or ""
                look *= 8
        except KafkaException as error:
            raise error_of(error.args[0], servers, "reading the connector's position") from None
        finally:
            consumer.close()

    def _bounds(self, consumer: Consumer) -> tuple[int, int]:
        """Return the first offset and the one after the last; waits until all brokers know a topic that is new."""
        from confluent_kafka import KafkaException, TopicPartition

        deadline = time.monotonic() + REACH_SECONDS
        while True:
            try:
                low, high = consumer.get_watermark_offsets(TopicPartition(self.name, 0), timeout=REACH_SECONDS)
                return low, high
            except KafkaException as error:
                if error.args[0].name() not in _NEW or time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)

    def _last(self, consumer: Any, servers: str, reported: Reported) -> str | None:
        """Return the last position among committed records."""
        position, deadline = None, time.monotonic() + REACH_SECONDS
        while time.monotonic() < deadline:
            message = consumer.poll(_POLL_SECONDS)
            if message is None:
                continue
            error = message.error()
            if error is not None and error.name() == "_PARTITION_EOF":
                return position
            if error is not None:
                raise error_of(error, servers, "reading the connector's position")
            if message.key() == self.key and message.value() is not None:
                position = message.value().decode()
        raise reported.unreachable(REACH_SECONDS)


def position_topic(name: str, prefix: str, slot: str, most_bytes: int) -> PositionTopic:
    """Return the topic of a connector: ``name``, or its own if that is empty."""
    key = json.dumps({"connector": prefix, "slot": slot}).encode()
    return PositionTopic(name or f"__wal2lake.{prefix}.{slot}", key, most_bytes)
