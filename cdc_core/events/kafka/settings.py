"""Settings of Kafka's Java clients as librdkafka's, which most of them are by name.

A setting that librdkafka does not have either has another name there, has no meaning outside of Java, or is refused
with the reason. References to secrets are resolved by the connector file's reader before this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cdc_core.errors import ConfigError
from cdc_core.events.kafka.options import KafkaOptions

_CONNECTION = re.compile(r"(security|sasl|ssl|client|metadata|socket|reconnect|connections|broker|request)\..+")
_RENAMED = {
    "max.request.size": "message.max.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "sasl.oauthbearer.token.endpoint.url": "sasl.oauthbearer.token.endpoint.url",
}
# They concern Java's classes and threads, or what wal2lake decides itself.
_WITHOUT_MEANING = frozenset(
    {
        *("key.serializer", "value.serializer", "key.deserializer", "value.deserializer", "interceptor.classes"),
        *("metric.reporters", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
        *(
            "max.block.ms",
            "auto.include.jmx.reporter",
            "partitioner.ignore.keys",
            "partitioner.adaptive.partitioning.enable",
        ),
        *("ssl.truststore.type", "ssl.keystore.type", "ssl.protocol", "ssl.enabled.protocols", "ssl.provider"),
        *("sasl.jaas.config", "sasl.login.class", "sasl.login.callback.handler.class", "security.providers"),
        *("sasl.client.callback.handler.class", "enable.metrics.push", "bootstrap.servers", "transactional.id"),
        *("max.poll.records", "default.api.timeout.ms", "fetch.max.bytes", "ssl.trustmanager.algorithm"),
        *("ssl.keymanager.algorithm", "ssl.secure.random.implementation", "socket.connection.setup.timeout.max.ms"),
        *("metadata.max.idle.ms", "partitioner.availability.timeout.ms", "metadata.recovery.rebootstrap.trigger.ms"),
        *("sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter", "sasl.login.connect.timeout.ms"),
        *("sasl.login.refresh.min.period.seconds", "sasl.login.refresh.buffer.seconds", "sasl.login.read.timeout.ms"),
    }
)
_PARTITIONERS = {
    "": "murmur2_random",
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "murmur2_random",
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": "random",
}
_COMPRESSIONS = ("gzip", "lz4", "zstd")
_MECHANISMS = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"})
_JAAS = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_MOST_WAITING_KIB = 65_536
# As long as Kafka Connect's producers wait: for ever; how long a run waits is decided by its stall time-out.
_FOR_EVER = "0"


def producer_settings(options: KafkaOptions, transactional_id: str = "") -> dict[str, str]:
    """Return the producer's settings: idempotent, acks=all, Kafka's default partitioner. Raises ConfigError."""
    java = dict(options.producer)
    defaults = {
        "message.max.bytes": "1048576",
        "message.timeout.ms": _FOR_EVER,
        "queue.buffering.max.kbytes": str(_MOST_WAITING_KIB),
        "queue.buffering.max.messages": "1000000",
    }
    own = {
        "enable.idempotence": "true",
        "partitioner": _partitioner(java.pop("partitioner.class", "")),
    }
    if java.pop("enable.idempotence", "true").strip().lower() != "true":
        raise ConfigError(
            "producer.enable.idempotence is false, but records could then be written twice or out of order.",
            "Remove it.",
        )
    if java.get("acks", "all").strip().lower() not in ("all", "-1"):
        raise ConfigError("producer.acks must be all: the slot is confirmed when all replicas have the records.")
    if transactional_id:
        # The longest that brokers permit by default: a transaction of the source is one of Kafka.
        defaults["transaction.timeout.ms"] = "900000"
        # librdkafka's own: at most the transaction's.
        del defaults["message.timeout.ms"]
        own["transactional.id"] = transactional_id
    memory = java.pop("buffer.memory", "")
    if memory:
        defaults["queue.buffering.max.kbytes"] = str(max(1, _whole("buffer.memory", memory) // 1024))
    if "max.request.size" in java:
        _whole("max.request.size", java["max.request.size"])
    level = java.pop(f"compression.{java.get('compression.type', '').strip().lower()}.level", "")
    if level:
        defaults["compression.level"] = level.strip()
    for kind in _COMPRESSIONS:
        # A level of a compression that is not used.
        java.pop(f"compression.{kind}.level", None)
    # A record that is dropped after a time-out would be a gap: a run waits, or ends, instead.
    java.pop("delivery.timeout.ms", None)
    return {**defaults, **_connected(options), **translated("producer", java), **own}


def _whole(name: str, text: str) -> int:
    if not re.fullmatch(r"\s*\d+\s*", text):
        raise ConfigError(f"producer.{name} is {text!r}: expected a whole number of bytes.")
    return int(text)


def admin_settings(options: KafkaOptions) -> dict[str, str]:
    """Return the admin client's settings: the producer's connection, and its own. Raises ConfigError."""
    return {**_connected(options), **translated("admin", dict(options.admin))}


def consumer_settings(
    options: KafkaOptions, prefix: str = "", given: Mapping[str, str] | None = None, servers: str = ""
) -> dict[str, str]:
    """Return a consumer's settings: the producer's connection, and its own. Raises ConfigError.

    ``servers``: other brokers than the producer's, whose connection settings are then not used.
    """
    own = translated(prefix, given or {})
    return {"bootstrap.servers": servers, **own} if servers else {**_connected(options), **own}


def transactional_id(prefix: str, slot: str) -> str:
    """Return the transactional.id of a connector's only task: a new run aborts open ones of an earlier run."""
    return f"wal2lake-{prefix}-{slot}-0"


def servers(options: KafkaOptions) -> str:
    """Return the brokers' addresses. Raises ConfigError without any."""
    found = dict(options.producer).get("bootstrap.servers", "").strip() or options.bootstrap_servers.strip()
    if not found:
        raise ConfigError("bootstrap.servers is missing: wal2lake.sinks contains kafka.")
    return found


def _connected(options: KafkaOptions) -> dict[str, str]:
    shared = {name: text for name, text in options.producer if _CONNECTION.fullmatch(name)}
    return {"bootstrap.servers": servers(options), **translated("producer", shared)}


def translated(prefix: str, java: Mapping[str, str]) -> dict[str, str]:
    """Return settings of a Java client as librdkafka's. Raises ConfigError for one that cannot be."""
    librdkafka: dict[str, str] = {}
    for name, text in java.items():
        if name == "ssl.truststore.location":
            librdkafka["ssl.ca.location"] = _pem(prefix, java, "truststore", text)
        elif name == "ssl.keystore.location":
            librdkafka.update(_keystore(prefix, java, text))
        elif name in ("ssl.truststore.password", "ssl.keystore.password", "ssl.key.password"):
            continue
        elif name == "ssl.endpoint.identification.algorithm":
            librdkafka[name] = text.strip() or "none"
        elif name not in _WITHOUT_MEANING:
            librdkafka[_RENAMED.get(name, name)] = text.strip()
    librdkafka.update(_passwords(java))
    librdkafka.update(_login(prefix, java))
    return librdkafka


def _pem(prefix: str, given: Mapping[str, str], kind: str, path: str) -> str:
    if given.get(f"ssl.{kind}.type", "JKS").strip().upper() != "PEM":
        raise ConfigError(
            f"{prefix}.ssl.{kind}.type must be PEM: a Java keystore cannot be read.",
            f"Convert it with keytool and openssl, and set {prefix}.ssl.{kind}.location to the PEM file.",
        )
    return path.strip()


def _keystore(prefix: str, given: Mapping[str, str], path: str) -> dict[str, str]:
    if given.get("ssl.keystore.type", "JKS").strip().upper() == "PKCS12":
        return {"ssl.keystore.location": path.strip(), "ssl.keystore.password": given.get("ssl.keystore.password", "")}
    location = _pem(prefix, given, "keystore", path)
    return {"ssl.certificate.location": location, "ssl.key.location": location}


def _passwords(given: Mapping[str, str]) -> dict[str, str]:
    password = given.get("ssl.key.password", "")
    return {"ssl.key.password": password} if password else {}


def _login(prefix: str, java: Mapping[str, str]) -> dict[str, str]:
    """Return user and password of sasl.jaas.config, which Java reads from the text of a login module."""
    jaas = java.get("sasl.jaas.config", "")
    mechanism = java.get("sasl.mechanism", java.get("sasl.mechanisms", "")).strip()
    if mechanism and mechanism.upper() not in _MECHANISMS:
        raise ConfigError(f"{prefix}.sasl.mechanism is not one of {', '.join(sorted(_MECHANISMS))}.")
    if not jaas:
        return {}
    parts = {name: re.sub(r"\\(.)", r"\1", text) for name, text in _JAAS.findall(jaas)}
    if "username" not in parts or "password" not in parts:
        raise ConfigError(
            f"{prefix}.sasl.jaas.config has no username and password: other login modules are not supported.",
            f"Use {prefix}.sasl.username and {prefix}.sasl.password, or librdkafka's settings of the mechanism.",
        )
    return {"sasl.username": parts["username"], "sasl.password": parts["password"]}


def _partitioner(name: str) -> str:
    if name.strip() not in _PARTITIONERS:
        raise ConfigError(
            "producer.partitioner.class names a Java class that wal2lake does not have.",
            "Remove it: keys are divided as by Kafka's default partitioner (murmur2).",
        )
    return _PARTITIONERS[name.strip()]
