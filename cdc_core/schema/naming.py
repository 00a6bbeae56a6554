"""Names of topics, schemas and fields, equal to Debezium's.

A table's topic is also the prefix of its schemas' names (``<topic>.Key``, ``.Value``, ``.Envelope``). Characters that
are not allowed in a name are replaced one by one; a character outside the basic plane counts as the two UTF-16 units of
a Java string.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from cdc_core.errors import TableError
from cdc_core.schema.options import NameAdjustmentMode, SchemaOptions, TopicNaming
from cdc_core.schema.table import TableId

# Kafka's limit for a topic's name.
MAX_TOPIC_LENGTH = 249

_TOPIC = re.compile(r"[A-Za-z0-9._-]")
_TOPIC_UNICODE = re.compile(r"[A-Za-z0-9.-]")
# First and following characters that a mode does not replace, for full names (dots allowed) and for field names.
_LEGAL = {
    (NameAdjustmentMode.AVRO, True): (re.compile(r"[A-Za-z_]"), re.compile(r"[A-Za-z0-9_.]")),
    (NameAdjustmentMode.AVRO, False): (re.compile(r"[A-Za-z_]"), re.compile(r"[A-Za-z0-9_]")),
    (NameAdjustmentMode.AVRO_UNICODE, True): (re.compile(r"[A-Za-z]"), re.compile(r"[A-Za-z0-9.]")),
    (NameAdjustmentMode.AVRO_UNICODE, False): (re.compile(r"[A-Za-z]"), re.compile(r"[A-Za-z0-9]")),
}


def adjust_schema_name(name: str, mode: NameAdjustmentMode) -> str:
    """A schema's full name under ``schema.name.adjustment.mode``; dots separate its parts and stay."""
    return _adjust(name, mode, dots=True)


def adjust_field_name(name: str, mode: NameAdjustmentMode) -> str:
    """Return a field's name under ``field.name.adjustment.mode``; a dot is replaced like any other character."""
    return _adjust(name, mode, dots=False)


def _adjust(name: str, mode: NameAdjustmentMode, *, dots: bool) -> str:
    if mode is NameAdjustmentMode.NONE or not name:
        return name
    first, following = _LEGAL[mode, dots]
    out = []
    for index, unit in enumerate(_utf16_units(name)):
        if (following if index else first).fullmatch(unit):
            out.append(unit)
        elif mode is NameAdjustmentMode.AVRO_UNICODE:
            out.append(_escaped(unit))
        else:
            # Two names that differ only in their leading digit must remain different, so the digit is kept.
            out.append("_" + (unit if index == 0 and unit.isdecimal() else ""))
    return "".join(out)


def _utf16_units(text: str) -> list[str]:
    raw = text.encode("utf-16-be", "surrogatepass")
    return [chr(int.from_bytes(raw[at : at + 2], "big")) for at in range(0, len(raw), 2)]


def _escaped(unit: str) -> str:
    """``_u`` and the code in hexadecimal. Codes of one or two digits get two zeros in front, longer ones none."""
    digits = f"{ord(unit):x}"
    return "_u" + ("00" + digits if len(digits) <= 2 else digits)


class Names:
    """The names of one connector. Stores the topics returned, to detect two tables with the same topic.

    ``rename``: ``topic.regex``'s, which may give several tables one topic.
    """

    def __init__(self, options: SchemaOptions, rename: Callable[[str], str] | None = None) -> None:
        self._options = options
        self._rename = rename
        self._topics: dict[TableId, str] = {}
        self._owners: dict[str, TableId] = {}

    @property
    def prefix(self) -> str:
        """The connector's logical name: source.name and the first part of every topic."""
        return self._options.topic_prefix

    @property
    def transaction_topic(self) -> str:
        """The topic of BEGIN and END records."""
        return self._options.topic_delimiter.join((self.prefix, self._options.topic_transaction))

    @property
    def heartbeat_topic(self) -> str:
        """The topic of heartbeats: the configured name, else ``<heartbeat prefix>.<topic prefix>``."""
        options = self._options
        return options.topic_heartbeat_name or options.topic_delimiter.join(
            (options.topic_heartbeat_prefix, self.prefix)
        )

    @property
    def message_topic(self) -> str:
        """The topic of logical messages; the separator is a dot regardless of topic.delimiter."""
        return f"{self.prefix}.message"

    def topic(self, table: TableId) -> str:
        """Return the topic of a table's events.

        Raises TableError if replacing characters or limiting the length results in another table's topic.
        """
        known = self._topics.get(table)
        if known is not None:
            return known
        plain = self.origin(table)
        topic = self._fit(plain)
        if self._rename is not None:
            topic = self._topics[table] = self._rename(topic)
            return topic
        owner = self._owners.setdefault(topic, table)
        if owner != table and topic != plain:
            raise TableError(
                f"Tables {owner} and {table} would both be written to topic {topic}.",
                f"Set topic.naming.strategy to {TopicNaming.SCHEMA_UNICODE.value}, or leave one of them out.",
                str(table),
            )
        self._topics[table] = topic
        return topic

    def origin(self, table: TableId) -> str:
        """Return the parts of a table's topic, joined: before characters are replaced and topics renamed."""
        parts = (table.table,) if self._options.topic_naming_strategy is TopicNaming.DEFAULT_REGEX else table
        return self._options.topic_delimiter.join(part for part in (self.prefix, *parts) if part.strip())

    def schema_name(self, name: str) -> str:
        """Return a schema's name under the configured mode."""
        return adjust_schema_name(name, self._options.schema_name_adjustment_mode)

    def field_name(self, column: str) -> str:
        """Return a column's field name under the configured mode."""
        return adjust_field_name(column, self._options.field_adjustment)

    def _fit(self, name: str) -> str:
        unicode = self._options.topic_naming_strategy is TopicNaming.SCHEMA_UNICODE
        legal = _TOPIC_UNICODE if unicode else _TOPIC
        units = (unit if legal.fullmatch(unit) else _escaped(unit) if unicode else "_" for unit in _utf16_units(name))
        return "".join(units)[:MAX_TOPIC_LENGTH]
