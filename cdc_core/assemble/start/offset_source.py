"""Where Connect's offset of the connector is: a file, a topic, pasted JSON, or the file that its settings name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cdc_core.assemble.context import RunContext
from cdc_core.errors import ConfigError
from cdc_core.offsets import MOST_BYTES, StoredOffset, choose, from_text, is_map, read_map

_FILE_SETTING = "offset.storage.file.filename"
_TOPIC = "connect-offsets"


@dataclass(frozen=True, slots=True)
class OffsetPlace:
    """``given``: a path, ``topic``, ``topic:NAME``, or JSON; empty: the file that the connector file names.

    ``bootstrap_servers``: brokers of the topic, empty for the connector's own.
    """

    given: str = ""
    bootstrap_servers: str = ""


def stored_offset(context: RunContext, place: OffsetPlace) -> StoredOffset:
    """Return the offset of this connector. Raises ConfigError if it is another one's, and CdcError of the brokers."""
    given = place.given.strip() or _configured(context)
    if given.startswith(("{", "[")):
        found = from_text(given)
    elif given == "topic" or given.startswith("topic:"):
        found = _from_topic(context, given.partition(":")[2] or _TOPIC, place.bootstrap_servers)
    else:
        found = _from_file(context, Path(given))
    if found.connector and found.server != context.name:
        raise ConfigError(
            f"The offset is of a connector with topic.prefix {found.server}; the connector file has {context.name}.",
            "Give the offset of this connector, or set topic.prefix as Debezium had it.",
        )
    return found


def _configured(context: RunContext) -> str:
    for setting in context.config.settings:
        if setting.name == _FILE_SETTING and setting.text.strip():
            return setting.text.strip()
    raise ConfigError(
        f"It is not known where the offset is: the connector file has no {_FILE_SETTING}.",
        "Give --offsets: a file, topic:NAME, or the offset as JSON.",
    )


def _from_file(context: RunContext, path: Path) -> StoredOffset:
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
        return choose(read_map(data, str(path)), context.config.connector_name, context.name, str(path))
    try:
        return from_text(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ConfigError(
            f"{path} is neither a file of Connect's FileOffsetBackingStore nor JSON.",
            "Give the file of offset.storage.file.filename, topic:NAME, or the offset as JSON.",
        ) from None


def _from_topic(context: RunContext, topic: str, servers: str) -> StoredOffset:
    from cdc_core.events import consumer_settings, read_offsets

    config = context.config
    has_own = config.kafka.bootstrap_servers or any(name == "bootstrap.servers" for name, _ in config.kafka.producer)
    if not (servers or has_own):
        raise ConfigError(
            f"It is not known where topic {topic} is: the connector file has no bootstrap.servers.",
            "Give --bootstrap-servers.",
        )
    entries = read_offsets(consumer_settings(config.kafka, servers=servers), topic)
    return choose(entries, config.connector_name, context.name, f"topic {topic}")
