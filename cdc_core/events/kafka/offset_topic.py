"""Reads the topic in which Kafka Connect stores its connectors' offsets, as a whole: it is small, because compacted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from cdc_core.errors import ConfigError
from cdc_core.events.kafka.client import REACH_SECONDS, BrokerError, Reported, error_of, open_reader

_POLL_SECONDS = 0.2
_MOST = 1000
_DOING = "reading the topic of Connect's offsets"


def read_offsets(settings: Mapping[str, str], topic: str) -> list[tuple[bytes, bytes | None]]:
    """Return keys and values of a topic's records, in the order in which they were written for each key.

    ``settings`` are a consumer's, with ``bootstrap.servers``. Raises CdcError.
    """
    from confluent_kafka import KafkaException, TopicPartition

    servers = settings.get("bootstrap.servers", "")
    if not servers:
        raise ConfigError(
            "It is not known where the topic of Connect's offsets is: there is no bootstrap.servers.",
            "Give --bootstrap-servers.",
        )
    reported = Reported(servers)
    consumer = open_reader(settings, "wal2lake-adopt", reported)
    try:
        known = consumer.list_topics(topic, timeout=REACH_SECONDS).topics[topic]
        if known.error is not None or not known.partitions:
            raise BrokerError(
                f"Kafka at {servers} has no topic {topic}.", "Give the worker's offset.storage.topic: topic:NAME."
            )
        consumer.assign([TopicPartition(topic, partition, 0) for partition in known.partitions])
        return _records(consumer, len(known.partitions), servers, reported)
    except KafkaException as error:
        if error.args[0].name() in ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN"):
            raise reported.unreachable(REACH_SECONDS) from None
        raise error_of(error.args[0], servers, _DOING) from None
    finally:
        consumer.close()


def _records(consumer: Any, partitions: int, servers: str, reported: Reported) -> list[tuple[bytes, bytes | None]]:
    """Read until the end of every partition. A key is in one partition only, so its records are in order."""
    records: list[tuple[bytes, bytes | None]] = []
    ended: set[int] = set()
    deadline = time.monotonic() + REACH_SECONDS
    while len(ended) < partitions:
        if time.monotonic() > deadline:
            raise reported.unreachable(REACH_SECONDS)
        for message in consumer.consume(_MOST, timeout=_POLL_SECONDS):
            deadline = time.monotonic() + REACH_SECONDS
            error = message.error()
            if error is None:
                if message.key() is not None:
                    records.append((message.key(), message.value()))
            elif error.name() == "_PARTITION_EOF":
                ended.add(message.partition())
            else:
                raise error_of(error, servers, _DOING)
    return records
