"""Where Connect's offset of the connector is: a file, a topic, pasted JSON, or the file that its settings name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cdc_core.errors import ConfigError
from cdc_core.events.kafka.offset_topic import read_offsets
from cdc_core.events.kafka.options import KafkaOptions
from cdc_core.events.kafka.settings import consumer_settings
from cdc_core.offsets import MOST_BYTES, StoredOffset, choose, from_text, is_map, read_map

FILE_SETTING = "offset.storage.file.filename"
_TOPIC = "connect-offsets"


@dataclass(frozen=True, slots=True)
class OffsetPlace:
    """``given``: a path, ``topic``, ``topic:NAME``, or JSON; empty: it is not known.

    ``bootstrap_servers``: brokers of the topic, empty for those of ``kafka``. ``connector`` and ``prefix`` are whose
    offset it is: its name in Connect, and its ``topic.prefix``.
    """

    given: str
    bootstrap_servers: str
    kafka: KafkaOptions
    connector: str
    prefix: str


def stored_offset(place: OffsetPlace) -> StoredOffset:
    """Return the offset of this connector. Raises ConfigError if it is another one's, and CdcError of the brokers."""
    source = place.given.strip()
    if not source:
        raise ConfigError(
            f"It is not known where the offset is: the connector file has no {FILE_SETTING}.",
            "Give --offsets: a file, topic:NAME, or the offset as JSON.",
        )
    if source.startswith(("{", "[")):
        offset = from_text(source)
    elif source == "topic" or source.startswith("topic:"):
        offset = _from_topic(place, source.partition(":")[2] or _TOPIC)
    else:
        offset = _from_file(place, Path(source))
    if offset.connector and offset.server != place.prefix:
        raise ConfigError(
            f"The offset is of a connector with topic.prefix {offset.server}; the connector file has {place.prefix}.",
            "Give the offset of this connector, or set topic.prefix as Debezium had it.",
        )
    return offset


def _from_file(place: OffsetPlace, path: Path) -> StoredOffset:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > MOST_BYTES:
                raise ConfigError(f"{path} is larger than {MOST_BYTES:,} bytes: it is no file of offsets.")
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigError(
            f"The file of offsets {path} cannot be read: {reason}.",
            "Give the file of offset.storage.file.filename, topic:NAME, or the offset as JSON.",
        ) from None
    if is_map(data):
        return choose(read_map(data, str(path)), place.connector, place.prefix, str(path))
    try:
        return from_text(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ConfigError(
            f"{path} is neither a file of Connect's FileOffsetBackingStore nor JSON.",
            "Give the file of offset.storage.file.filename, topic:NAME, or the offset as JSON.",
        ) from None


def _from_topic(place: OffsetPlace, topic: str) -> StoredOffset:
    kafka, servers = place.kafka, place.bootstrap_servers
    has_own = kafka.bootstrap_servers or any(name == "bootstrap.servers" for name, _ in kafka.producer)
    if not (servers or has_own):
        raise ConfigError(
            f"It is not known where topic {topic} is: the connector file has no bootstrap.servers.",
            "Give --bootstrap-servers.",
        )
    entries = read_offsets(consumer_settings(kafka, servers=servers), topic)
    return choose(entries, place.connector, place.prefix, f"topic {topic}")
