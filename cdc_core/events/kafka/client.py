"""Opens Kafka clients, and converts their errors to sentences. Only this package imports confluent-kafka."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cdc_core.errors import CdcError, ConfigError, DefiniteError, TransientError
from cdc_core.extras import require

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

_log = logging.getLogger(__name__)
# librdkafka's own log: what matters is reported as an error, too.
_library = logging.getLogger("cdc_core.events.kafka.librdkafka")
_library.setLevel(logging.ERROR)
_library.propagate = False
_library.addHandler(logging.NullHandler())

REACH_SECONDS = 30.0
_DENIED = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    }
)
_FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
_REFUSED = frozenset({"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "_SSL"})


class BrokerError(DefiniteError):
    """Kafka refuses a request; the same at every retry."""


class Reported:
    """The last error that a client reported in the background: of connecting, or ``fatal``, which ends it."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self.refused = ""
        self.last = ""
        self.fatal: Any = None

    def __call__(self, error: Any) -> None:
        """Record an error of the client; called by its ``poll``."""
        self.last = error.str().strip().rstrip(".")
        if error.name() in _REFUSED:
            self.refused = self.last
        if error.fatal():
            self.fatal = error
        _log.debug("Kafka at %s: %s", self._servers, self.last)

    def unreachable(self, seconds: float) -> CdcError:
        """Return the error of a client that did not reach a broker in time."""
        if self.refused:
            return BrokerError(
                f"Kafka at {self._servers} refused the connection: {self.refused}.",
                "Correct producer.security.protocol, producer.sasl.* or producer.ssl.*.",
            )
        said = f": {self.last}" if self.last else ""
        return TransientError(
            f"Kafka at {self._servers} did not answer within {seconds:g} s{said}.",
            "Check that it is running, bootstrap.servers, and that its advertised listeners can be reached from here.",
        )


def open_producer(settings: Mapping[str, str], reported: Reported) -> Producer:
    """Create a producer, which connects in the background. Raises ConfigError."""
    module = _module()
    own = {"delivery.report.only.error": True}
    return _made(lambda given: module.Producer({**given, **own}, logger=_library), settings, reported, "producer")


def open_consumer(settings: Mapping[str, str], reported: Reported) -> Consumer:
    """Create a consumer, which connects in the background. Raises ConfigError."""
    module = _module()
    return _made(lambda given: module.Consumer(given, logger=_library), settings, reported, "signal.consumer")


def open_reader(
    settings: Mapping[str, str], group: str, reported: Reported, *, isolation: str = "read_committed"
) -> Consumer:
    """Create a consumer for reading assigned partitions to their ends (``_PARTITION_EOF``): committed records.

    With ``isolation`` read_uncommitted also others. It stores no offsets in ``group``. Raises ConfigError.
    """
    own = {
        "group.id": group,
        "enable.auto.commit": "false",
        "isolation.level": isolation,
        "enable.partition.eof": "true",
    }
    return open_consumer({**settings, **own}, reported)


def open_admin(settings: Mapping[str, str], reported: Reported) -> AdminClient:
    """Create an admin client, which connects in the background. Raises ConfigError."""
    _module()
    from confluent_kafka.admin import AdminClient

    return _made(lambda given: AdminClient(given, logger=_library), settings, reported, "admin")


def _made(make: Any, settings: Mapping[str, str], reported: Reported, prefix: str) -> Any:
    from confluent_kafka import KafkaException

    try:
        return make({**settings, "error_cb": reported})
    except KafkaException as error:
        raise ConfigError(f"A property of {prefix}.* is not valid: {error.args[0].str().rstrip('.')}.") from None
    except (ValueError, TypeError) as error:
        raise ConfigError(f"A property of {prefix}.* is not valid: {error}.") from None


def _module() -> Any:
    require("kafka", "Kafka")
    import confluent_kafka

    return confluent_kafka


def error_of(error: Any, servers: str, doing: str) -> CdcError:
    """Return the CdcError for librdkafka's error. ``doing``: the failed operation, as a gerund."""
    name, said = error.name(), error.str().strip().rstrip(".")
    if name in _FENCED:
        return TransientError(
            f"Another producer has taken the transactional.id of this connector while {doing}: {said}.",
            "Run one run of a connector at a time.",
        )
    if name in _DENIED:
        return BrokerError(f"Kafka at {servers} does not permit {doing}: {said}.", "Grant the client the right (ACLs).")
    if name in _REFUSED:
        return BrokerError(f"Kafka at {servers} refused the connection: {said}.", "Correct producer.sasl.* or .ssl.*.")
    if name == "INVALID_TRANSACTION_TIMEOUT":
        return BrokerError(
            f"Kafka at {servers} does not permit a transaction time-out as long as the connector's.",
            "Set producer.transaction.timeout.ms to at most the brokers' transaction.max.timeout.ms.",
        )
    if name in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
        return BrokerError(
            f"Kafka at {servers} does not have a topic, and does not create it automatically ({doing}).",
            "Create it, or set topic.creation.default.replication.factor and topic.creation.default.partitions.",
        )
    kind = TransientError if error.retriable() or name.startswith("_") else BrokerError
    return kind(f"Kafka at {servers} failed {doing}: {said}.")
