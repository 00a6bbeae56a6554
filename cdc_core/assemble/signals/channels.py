"""The channels of signals that the connector file enables. Kafka's part is loaded where its channel is enabled."""

from __future__ import annotations

from pathlib import Path

from cdc_core.assemble.signals.own_file import OWN_INTERVAL_MS, own_signals
from cdc_core.config import ConnectorConfig
from cdc_core.postgres import Finding
from cdc_core.snapshot import Channel, FileChannel


def own_channel(config: ConnectorConfig) -> Channel:
    """The file through which ``wal2lake signal`` and other commands reach a run on this machine."""
    return FileChannel(own_signals(config), OWN_INTERVAL_MS, holds=True)


def given_channels(config: ConnectorConfig, *, holds: bool) -> list[Channel]:
    """The channels ``file`` and ``kafka``, if enabled. ``holds`` as for ``FileChannel``. Raises ConfigError."""
    signals = config.signals
    channels: list[Channel] = []
    if "file" in signals.signal_enabled_channels:
        channels.append(FileChannel(Path(signals.signal_file), signals.signal_poll_interval_ms, holds=holds))
    if "kafka" in signals.signal_enabled_channels:
        from cdc_core.events import KafkaChannel

        channels.append(KafkaChannel(signals, config.kafka, config.schema.topic_prefix))
    return channels


def require_channels(config: ConnectorConfig) -> None:
    """Raise ConfigError if an enabled channel of signals cannot be opened: before the first row is read."""
    if "kafka" in config.signals.signal_enabled_channels:
        from cdc_core.events import KafkaChannel

        KafkaChannel(config.signals, config.kafka, config.schema.topic_prefix).close()


def channel_findings(config: ConnectorConfig) -> list[Finding]:
    """Whether the topic of signals can be read, if the channel is enabled."""
    if "kafka" not in config.signals.signal_enabled_channels:
        return []
    from cdc_core.events import KafkaChannel

    return KafkaChannel.findings(config.signals, config.kafka, config.schema.topic_prefix)
