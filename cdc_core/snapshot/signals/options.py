"""Options of the sources of signals and the channels of notifications."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cdc_core.option import at_least, option, parse_list

_CHANNELS = ("source", "file", "in-process", "kafka")
_NOTIFICATION_CHANNELS = ("log", "sink")


def parse_names(text: str) -> tuple[str, ...]:
    """Parse names to lower case; ``config`` reports those that are not supported."""
    return tuple(name.lower() for name in parse_list(text))


def parse_actions(text: str) -> tuple[tuple[str, str], ...]:
    """Parse ``type=package.module.Class`` pairs, separated by commas."""
    pairs = [tuple(part.strip() for part in entry.partition("=")[::2]) for entry in parse_list(text)]
    if any(not name or not path for name, path in pairs):
        raise ValueError("a list such as my-signal=package.module.Class")
    return tuple((name, path) for name, path in pairs)


parse_names.kind = parse_actions.kind = "list"  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class SignalOptions:
    """Options of signals and notifications; the signal table itself is ``signal.data.collection``."""

    signal_enabled_channels: tuple[str, ...] = option(
        "signal.enabled.channels",
        ("source",),
        "Enabled signal channels: source, file, in-process, kafka.",
        parse=parse_names,
    )
    signal_poll_interval_ms: int = option(
        "signal.poll.interval.ms", 5_000, "Interval at which signal.file is read.", parse=at_least(1)
    )
    signal_file: str = option(
        "signal.file", "file-signals.txt", "Signal file with one JSON object per line; it is emptied when it is read."
    )
    signal_kafka_topic: str = option(
        "signal.kafka.topic", "", "Topic of the channel kafka. Empty: <topic.prefix>-signal."
    )
    signal_kafka_bootstrap_servers: str = option(
        "signal.kafka.bootstrap.servers", "", "Brokers of the channel kafka. Empty: those of the producer."
    )
    signal_kafka_group_id: str = option(
        "signal.kafka.groupId",
        "",
        "Consumer group whose offsets record which signals were processed. Empty: kafka-signal-<topic.prefix>.",
    )
    signal_kafka_poll_timeout_ms: int = option(
        "signal.kafka.poll.timeout.ms",
        100,
        "How long, and how often, the topic is read for signals.",
        parse=at_least(1),
    )
    signal_consumer: tuple[tuple[str, str], ...] = option(
        "signal.consumer.*",
        (),
        "A setting of the consumer of signals (`signal.consumer.security.protocol`).",
        parse=str,
        pattern=r"signal\.consumer\.(.+)",
    )
    signal_actions: tuple[tuple[str, str], ...] = option(
        "wal2lake.signal.actions",
        (),
        "Custom signal types, each with the Python class that processes it: my-signal=package.module.Class.",
        parse=parse_actions,
    )
    notification_enabled_channels: tuple[str, ...] = option(
        "notification.enabled.channels",
        (),
        "Enabled channels for notifications of snapshot starts, progress and ends: log, sink (the Delta table "
        "__notifications in the lake, and the topic notification.sink.topic.name in Kafka).",
        parse=parse_names,
    )
    notification_sink_topic_name: str = option(
        "notification.sink.topic.name", "", "Topic of notifications; without it none are written to Kafka."
    )

    def unsupported(self) -> Iterator[str]:
        """Yield what the lists of channels have that is not supported, a sentence for each list."""
        for name, chosen, known in (
            ("signal.enabled.channels", self.signal_enabled_channels, _CHANNELS),
            ("notification.enabled.channels", self.notification_enabled_channels, _NOTIFICATION_CHANNELS),
        ):
            others = [channel for channel in chosen if channel not in known]
            if others:
                yield f"{name} lists {', '.join(others)}: not supported yet; supported: {', '.join(known)}."
