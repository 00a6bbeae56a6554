"""The topic of signals, opened with the connector's options: for a run, and to try it before a run reads a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.config import ConnectorConfig
from cdc_core.errors import ConfigError
from cdc_core.postgres import Finding, bad, doubtful, good

if TYPE_CHECKING:
    from cdc_core.events import SignalTopic


def require_channels(config: ConnectorConfig) -> None:
    """Raise ConfigError if an enabled channel of signals cannot be opened: before the first row is read."""
    if "kafka" in config.signals.signal_enabled_channels:
        signal_topic(config).close()


def channel_findings(config: ConnectorConfig) -> list[Finding]:
    """Whether the topic of signals can be read; a warning if it does not exist, or the brokers do not answer."""
    if "kafka" not in config.signals.signal_enabled_channels:
        return []
    try:
        topic = signal_topic(config)
    except ConfigError as error:
        return [bad("signals", error.message, error.remedy)]
    try:
        found = topic.examine()
    finally:
        topic.close()
    if found:
        return [doubtful("signals", found, "A run goes on without the channel kafka, and tries again.")]
    return [good("signals", f"The topic {topic.name} can be read.")]


def signal_topic(config: ConnectorConfig) -> SignalTopic:
    """Open the topic. Raises ConfigError."""
    from cdc_core.events import SignalTopic, consumer_settings

    signals, name = config.signals, config.schema.topic_prefix
    given = dict(signals.signal_consumer)
    own_servers = signals.signal_kafka_bootstrap_servers.strip() or given.pop("bootstrap.servers", "").strip()
    kafka = config.kafka
    if not own_servers and not kafka.bootstrap_servers and "bootstrap.servers" not in dict(kafka.producer):
        raise ConfigError("signal.kafka.bootstrap.servers is missing: signal.enabled.channels contains kafka.")
    settings = consumer_settings(kafka, "signal.consumer", given, own_servers)
    return SignalTopic(
        settings,
        signals.signal_kafka_topic or f"{name}-signal",
        signals.signal_kafka_group_id or f"kafka-signal-{name}",
        name,
        signals.signal_kafka_poll_timeout_ms / 1000,
    )
