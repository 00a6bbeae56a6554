"""A real Kafka broker, and what its topics hold as the lines that ``wal2lake envelopes`` writes."""

from __future__ import annotations

import base64
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trustme
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography.hazmat.primitives import serialization

from cdc_core.demo.broker import Broker, Secured
from tests.support.waits import wait_until

SECONDS = 60.0


@contextmanager
def started_broker(secured: Secured | None = None) -> Iterator[Broker]:
    """A broker that answers, with topics of one partition."""
    with tempfile.TemporaryDirectory(prefix="w2l-kafka-") as folder, Broker(Path(folder), secured=secured) as broker:
        await_broker(broker.servers)
        yield broker


def certified(folder: Path, **users: str) -> tuple[Secured, Path]:
    """What a broker needs for TLS and these users, and the file of the authority that its clients trust."""
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    key = serialization.load_pem_private_key(made.private_key_pem.bytes(), None)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    certificate, trusted = folder / "broker.pem", folder / "authority.pem"
    certificate.write_bytes(key.private_bytes(*form) + b"".join(one.bytes() for one in made.cert_chain_pems))
    authority.cert_pem.write_to_path(str(trusted))
    return Secured(certificate, users), trusted


def await_broker(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": "0"})
    wait_until(lambda: bool(admin.list_topics(timeout=5).brokers), SECONDS, "an answer of the broker")


class Topics:
    """A test's own view of a broker: as an ordinary client has it."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.admin = AdminClient({"bootstrap.servers": servers, "log_level": "0"})

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        asked = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
        self.admin.create_topics([asked])[name].result(SECONDS)

    def delete(self, names: set[str]) -> None:
        """Delete those that exist, and wait until they are gone."""
        existing = names & self.names()
        if existing:
            for made in self.admin.delete_topics(sorted(existing)).values():
                made.result(SECONDS)
            wait_until(lambda: not names & self.names(), SECONDS, "the end of topics")

    def names(self) -> set[str]:
        return {name for name in self.admin.list_topics(timeout=SECONDS).topics if not name.startswith("__")}

    def partitions(self, name: str) -> int:
        return len(self.admin.list_topics(name, timeout=SECONDS).topics[name].partitions)

    def send(self, topic: str, key: str, value: str) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        producer.produce(topic, value, key)
        assert producer.flush(SECONDS) == 0

    def messages(self, *topics: str, committed: bool = True) -> list[Any]:
        """Every record of the topics (none: all but Kafka's own and positions), by topic, partition and offset."""
        chosen = topics or tuple(sorted(self.names()))
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "tests",
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )
        try:
            parts = [TopicPartition(name, n, 0) for name in chosen for n in range(self.partitions(name))]
            consumer.assign(parts)
            found, ended, deadline = [], 0, time.monotonic() + SECONDS
            while ended < len(parts):
                assert time.monotonic() < deadline, "the topics could not be read in time"
                for message in consumer.consume(1000, timeout=0.2):
                    if message.error() is None:
                        found.append(message)
                    else:
                        assert message.error().name() == "_PARTITION_EOF", message.error()
                        ended += 1
        finally:
            consumer.close()
        return sorted(found, key=lambda one: (one.topic(), one.partition(), one.offset()))

    def lines(self, *topics: str, suffix: str = "", **how: Any) -> list[str]:
        """The records as lines: JSON as it is, or base64 under names with a ``suffix``."""
        return [line_of(message, suffix) for message in self.messages(*topics, **how)]


def line_of(message: Any, suffix: str = "") -> str:
    def shown(raw: bytes | None) -> Any:
        if raw is None:
            return None
        return base64.b64encode(raw).decode() if suffix else json.loads(raw)

    line = {"topic": message.topic(), f"key{suffix}": shown(message.key()), f"value{suffix}": shown(message.value())}
    if not suffix:
        line["headers"] = [
            {"key": name, "value": None if raw is None else json.loads(raw)} for name, raw in message.headers() or []
        ]
    return json.dumps(line)
