"""Connect's entries: a key ``["<connector>", {"server": "<topic.prefix>"}]`` and an offset for each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cdc_core.errors import ConfigError
from cdc_core.offsets.java_map import Entries, write_map
from cdc_core.offsets.offset import DebeziumOffset

_EXPECTED = "Give the offset's JSON object, or [KEY, VALUE] with the key that Connect stores."


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """An offset with its connector; ``connector`` and ``server`` are empty if only the value was stored."""

    connector: str
    server: str
    offset: DebeziumOffset


def key_json(connector: str, server: str) -> str:
    """Return the key under which Connect stores the offset of a connector with the topic prefix ``server``."""
    return json.dumps([connector, {"server": server}], separators=(",", ":"))


def file_of(connector: str, server: str, offset: str) -> bytes:
    """Return the file of FileOffsetBackingStore with one offset."""
    return write_map([(key_json(connector, server).encode(), offset.encode())])


def from_text(text: str) -> StoredOffset:
    """Read pasted JSON: a value, or key and value as ``[KEY, VALUE]`` or one after the other. Raises ConfigError."""
    values = _values(text)
    if len(values) == 1 and isinstance(values[0], list) and len(values[0]) == 2 and _named(values[0][0]) is not None:
        values = list(values[0])
    if len(values) == 1 and isinstance(values[0], dict):
        return StoredOffset("", "", DebeziumOffset.of(_value_of(values[0])))
    named = _named(values[0]) if len(values) == 2 else None
    if named is None or not isinstance(values[1], dict):
        raise ConfigError("The JSON is not an offset of Connect.", _EXPECTED)
    return StoredOffset(*named, DebeziumOffset.of(_value_of(values[1])))


def choose(entries: Entries, connector: str, server: str, name: str) -> StoredOffset:
    """Return the newest offset of the connector with the topic prefix ``server``; later entries replace earlier ones.

    ``connector`` decides if several have that prefix. ``name`` is where the entries are from. Raises ConfigError.
    """
    newest: dict[tuple[str, str], bytes | None] = {}
    for key, value in entries:
        named = _named(_decoded(key))
        if named is not None:
            newest[named] = value
    mine = {named: value for named, value in newest.items() if named[1] == server and value}
    if len(mine) > 1:
        mine = {named: value for named, value in mine.items() if named[0] == connector}
    if not mine:
        raise _not_found(newest, connector, server, name)
    [(named, value)] = mine.items()
    offset = _decoded(value or b"")
    if not isinstance(offset, dict):
        raise ConfigError(f"The offset of connector {named[0]} in {name} is not a JSON object.", _EXPECTED)
    return StoredOffset(*named, DebeziumOffset.of(_value_of(offset)))


def _not_found(newest: Iterable[tuple[str, str]], connector: str, server: str, name: str) -> ConfigError:
    others = sorted(f"{known} (topic.prefix {prefix})" for known, prefix in newest)
    said = f" It has those of {', '.join(others[:10])}." if others else " It has none."
    return ConfigError(
        f"{name} has no offset of a connector with topic.prefix {server}, or several of which none is named "
        f"{connector}.{said}",
        "Give the offsets of this connector, or correct name and topic.prefix in the connector file.",
    )


def _values(text: str) -> list[Any]:
    """Return the JSON values of a text, one after the other. Raises ConfigError."""
    decoder, values, at = json.JSONDecoder(), [], 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip(" \t\r\n,:"))
        if at == len(text):
            break
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            raise ConfigError("The offset is not JSON.", _EXPECTED) from None
        values.append(value)
    return values


def _decoded(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _named(key: Any) -> tuple[str, str] | None:
    """Return connector and topic prefix of a key of Debezium's connector for PostgreSQL; None for any other.

    With ``schemas.enable`` Connect's converter writes the key under ``payload``.
    """
    if isinstance(key, dict) and "payload" in key:
        key = key["payload"]
    if not isinstance(key, list) or len(key) != 2 or not isinstance(key[0], str) or not isinstance(key[1], dict):
        return None
    server = key[1].get("server")
    return (key[0], server) if isinstance(server, str) else None


def _value_of(value: dict[str, Any]) -> dict[str, Any]:
    inner = value.get("payload")
    return inner if isinstance(inner, dict) and "lsn" not in value else value
