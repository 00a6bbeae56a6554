"""Settings of Java's clients become librdkafka's."""

from __future__ import annotations

import pytest

from cdc_core.errors import ConfigError
from cdc_core.events.kafka.options import KafkaOptions
from cdc_core.events.kafka.settings import admin_settings, consumer_settings, producer_settings, transactional_id


def options(*producer: tuple[str, str], **more: object) -> KafkaOptions:
    return KafkaOptions(bootstrap_servers="kafka:9092", producer=producer, **more)  # type: ignore[arg-type]


def test_a_producer_is_idempotent_and_divides_keys_as_kafkas_default() -> None:
    made = producer_settings(options())
    assert made["bootstrap.servers"] == "kafka:9092"
    assert (made["enable.idempotence"], made["partitioner"]) == ("true", "murmur2_random")
    assert made["message.timeout.ms"] == "0"
    assert made["message.max.bytes"] == "1048576"


def test_settings_of_java_have_librdkafkas_names() -> None:
    made = producer_settings(
        options(
            ("bootstrap.servers", "other:1"),
            ("max.request.size", "5000000"),
            ("buffer.memory", "33554432"),
            ("compression.type", "zstd"),
            ("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer"),
            ("delivery.timeout.ms", "120000"),
            ("ssl.endpoint.identification.algorithm", ""),
        )
    )
    assert made["bootstrap.servers"] == "other:1"
    assert made["message.max.bytes"] == "5000000"
    assert made["queue.buffering.max.kbytes"] == "32768"
    assert made["compression.type"] == "zstd"
    assert made["ssl.endpoint.identification.algorithm"] == "none"
    assert not {"key.serializer", "delivery.timeout.ms", "max.request.size"} & made.keys()


def test_levels_are_those_of_the_compression_in_use() -> None:
    made = producer_settings(
        options(("compression.type", "zstd"), ("compression.zstd.level", "7"), ("compression.lz4.level", "9"))
    )
    assert made["compression.level"] == "7"
    assert not {"compression.zstd.level", "compression.lz4.level"} & made.keys()


def test_the_login_of_jaas_is_read() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="cdc" password="a \\"b\\"";'
    given = options(("security.protocol", "SASL_SSL"), ("sasl.mechanism", "SCRAM-SHA-512"), ("sasl.jaas.config", jaas))
    for made in (producer_settings(given), admin_settings(given), consumer_settings(given)):
        assert made["security.protocol"] == "SASL_SSL"
        assert (made["sasl.username"], made["sasl.password"]) == ("cdc", 'a "b"')
        assert "sasl.jaas.config" not in made


def test_pem_files_are_used_and_other_stores_are_refused() -> None:
    pem = options(("ssl.truststore.type", "PEM"), ("ssl.truststore.location", "/ca.pem"))
    assert producer_settings(pem)["ssl.ca.location"] == "/ca.pem"
    with pytest.raises(ConfigError, match="must be PEM"):
        producer_settings(options(("ssl.truststore.location", "/ca.jks")))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("acks", "1", "acks must be all"),
        ("enable.idempotence", "false", "twice or out of order"),
        ("partitioner.class", "org.example.Mine", "Java class"),
        ("sasl.mechanism", "MINE", "sasl.mechanism is not one of"),
        ("buffer.memory", "64MB", "expected a whole number of bytes"),
        ("max.request.size", "", "expected a whole number of bytes"),
    ],
)
def test_unsupported_settings_are_reported(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        producer_settings(options((name, value)))


def test_transactions_have_one_id_for_a_connector() -> None:
    made = producer_settings(options(), transactional_id("shop", "slot"))
    assert made["transactional.id"] == "wal2lake-shop-slot-0"
    assert made["transaction.timeout.ms"] == "900000"


def test_without_servers_it_says_so() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing"):
        producer_settings(KafkaOptions())


def test_a_consumer_of_other_brokers_has_its_own_connection() -> None:
    given = options(("security.protocol", "SASL_SSL"))
    made = consumer_settings(given, "signal.consumer", {"fetch.min.bytes": "1"}, "signals:9092")
    assert made == {"bootstrap.servers": "signals:9092", "fetch.min.bytes": "1"}
