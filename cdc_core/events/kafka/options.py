"""Options of Kafka as a destination."""

# option() is dataclasses.field with a declaration, so each call is where ruff expects a field.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cdc_core.option import at_least, option

Pairs = tuple[tuple[str, str], ...]


class ExactlyOnce(StrEnum):
    """``requested``: at least once after a crash, as Kafka Connect's default. ``required``: by transactions."""

    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Options of the sink kafka. The settings of clients are those of Kafka's Java clients (``settings``)."""

    bootstrap_servers: str = option(
        "bootstrap.servers",
        "",
        "Addresses (host:port) of Kafka brokers, for wal2lake.sinks=kafka; producer.bootstrap.servers overrides it.",
    )
    producer: Pairs = option(
        "producer.*",
        (),
        "A setting of the Kafka producer (`producer.compression.type`, `producer.security.protocol`); also written "
        "`producer.override.*`. Its connection settings apply to the admin client, too.",
        parse=str,
        pattern=r"producer\.(?:override\.)?(.+)",
    )
    admin: Pairs = option(
        "admin.*",
        (),
        "A setting of the Kafka admin client, which creates topics; also written `admin.override.*`.",
        parse=str,
        pattern=r"admin\.(?:override\.)?(.+)",
    )
    topic_creation: Pairs = option(
        "topic.creation.*",
        (),
        "How topics are created, as in Kafka Connect: `topic.creation.default.replication.factor`, "
        "`topic.creation.default.partitions`, other topic settings, and the same for the groups of "
        "`topic.creation.groups`, each with `include` and `exclude`. Without them the broker creates topics.",
        parse=str,
        pattern=r"topic\.creation\.(.+)",
    )
    exactly_once_support: ExactlyOnce = option(
        "exactly.once.support",
        ExactlyOnce.REQUESTED,
        "required: records and positions are written in Kafka transactions, so that consumers with "
        "isolation.level=read_committed see each change once. requested: at least once after a crash.",
    )
    offsets_storage_topic: str = option(
        "offsets.storage.topic",
        "",
        "Topic in which the connector stores its position in Kafka. Empty: __wal2lake.<topic.prefix>.<slot.name>.",
    )
    kafka_stall_timeout_ms: int = option(
        "wal2lake.kafka.stall.timeout.ms",
        600_000,
        "Maximum time that a run waits while Kafka acknowledges nothing. With wal2lake.sinks=lake,kafka the lake is "
        "merged meanwhile, and the time begins when wal2lake.kafka.backlog.max.bytes is reached.",
        parse=at_least(1),
    )
    kafka_backlog_max_bytes: int = option(
        "wal2lake.kafka.backlog.max.bytes",
        256 * 1024 * 1024,
        "Maximum size in bytes of the changes that wait in memory for Kafka; reading from the slot pauses at this "
        "size.",
        parse=at_least(1),
    )
