"""Options for the names of topics, schemas and fields, and for key columns."""

# option() is dataclasses.field with a declaration, so each call is where ruff expects a field.
# ruff: noqa: RUF009

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from cdc_core.option import Named, PropertyStatus, option

_PREFIX = re.compile(r"[A-Za-z0-9._-]+")
_KEY_RULE = re.compile(r"\s*([^\s:]+):([^:\s]+(?:\s*,\s*[^:\s]+)*)\s*")


class NameAdjustmentMode(StrEnum):
    """``none``: unchanged names. ``avro``: characters not allowed in Avro become ``_``. ``avro_unicode``: ``_uXXXX``"""

    NONE = "none"
    AVRO = "avro"
    AVRO_UNICODE = "avro_unicode"


class SchemaRefreshMode(StrEnum):
    """When the table's description is re-read; relevant only for plugins without Relation messages."""

    COLUMNS_DIFF = "columns_diff"
    COLUMNS_DIFF_EXCLUDE_UNCHANGED_TOAST = "columns_diff_exclude_unchanged_toast"


class TopicNaming(StrEnum):
    """``SCHEMA``: ``prefix.schema.table``, characters not allowed by Kafka become ``_``.

    ``SCHEMA_UNICODE``: they become ``_uXXXX``. ``SCHEMA_REGEX``: as ``SCHEMA``, then ``topic.regex`` is replaced.
    ``DEFAULT_REGEX``: the same for ``prefix.table``, for Debezium leaves the schema out there.
    """

    SCHEMA = "io.debezium.schema.SchemaTopicNamingStrategy"
    SCHEMA_UNICODE = "io.debezium.schema.SchemaUnicodeTopicNamingStrategy"
    SCHEMA_REGEX = "io.debezium.schema.SchemaRegexTopicNamingStrategy"
    DEFAULT_REGEX = "io.debezium.schema.DefaultRegexTopicNamingStrategy"

    @property
    def is_regex(self) -> bool:
        """Whether ``topic.regex`` renames topics."""
        return self in (TopicNaming.SCHEMA_REGEX, TopicNaming.DEFAULT_REGEX)


@dataclass(frozen=True, slots=True)
class KeyRule:
    """One entry of ``message.key.columns``: a regex over ``schema.table``, and regexes over its column names."""

    table: str
    columns: tuple[str, ...]


def parse_topic_prefix(text: str) -> str:
    """Parse a prefix of letters, digits, hyphen, dot and underscore."""
    if _PREFIX.fullmatch(text.strip()) is None:
        raise ValueError("letters, digits, hyphens, dots and underscores")
    return text.strip()


def parse_key_columns(text: str) -> tuple[KeyRule, ...]:
    """Parse rules separated by ``;``, each ``table-regex:column[,column…]``."""
    rules = []
    for part in text.split(";"):
        if not part.strip():
            continue
        match = _KEY_RULE.fullmatch(part)
        if match is None:
            raise ValueError("schema.table:column[,column…], several separated by semicolons")
        rules.append(KeyRule(match[1], tuple(column.strip() for column in match[2].split(","))))
    return tuple(rules)


def parse_naming_strategy(text: str) -> TopicNaming:
    """Parse the full class name, or its last part."""
    wanted = text.strip().rpartition(".")[2].lower()
    for member in TopicNaming:
        if member.value.rpartition(".")[2].lower() == wanted:
            return member
    raise ValueError("one of " + ", ".join(member.value for member in TopicNaming))


parse_naming_strategy.allowed = tuple(member.value for member in TopicNaming)  # type: ignore[attr-defined]
parse_key_columns.kind = "list"  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """Options of names and keys."""

    topic_prefix: str = option(
        "topic.prefix",
        "",
        "The connector's logical name: source.name, and the first part of topic names, schema names and the "
        "lake's folders.",
        parse=parse_topic_prefix,
        aliases=("database.server.name",),
        required=True,
    )
    topic_delimiter: str = option("topic.delimiter", ".", "Delimiter between the parts of a topic name.")
    topic_naming_strategy: TopicNaming = option(
        "topic.naming.strategy",
        TopicNaming.SCHEMA,
        "How topics are named.",
        parse=parse_naming_strategy,
    )
    topic_regex: str = option(
        "topic.regex", "", "Regular expression of topics that are renamed, with a regex topic.naming.strategy."
    )
    topic_replacement: str = option(
        "topic.replacement", "", "What replaces the match of topic.regex; $1 or ${name} are its groups."
    )
    topic_key_enforce_uniqueness: bool = option(
        "topic.key.enforce.uniqueness",
        True,
        "Whether keys get a field with the original topic, with a regex topic.naming.strategy.",
    )
    topic_key_field_name: str = option(
        "topic.key.field.name", "__dbz__physicalTableIdentifier", "Name of the field that keys get."
    )
    topic_key_field_regex: str = option(
        "topic.key.field.regex", "", "Regular expression of original topics that are changed before they are in keys."
    )
    topic_key_field_replacement: str = option(
        "topic.key.field.replacement", "", "What replaces the match of topic.key.field.regex."
    )
    topic_transaction: str = option(
        "topic.transaction", "transaction", "Last part of the name of the transaction metadata topic."
    )
    topic_heartbeat_prefix: str = option(
        "topic.heartbeat.prefix",
        "__debezium-heartbeat",
        "First part of the name of the heartbeat topic.",
        aliases=("heartbeat.topics.prefix",),
    )
    topic_heartbeat_name: str = option(
        "topic.heartbeat.name", "", "Name of the heartbeat topic, instead of <prefix>.<topic.prefix>."
    )
    schema_name_adjustment_mode: NameAdjustmentMode = option(
        "schema.name.adjustment.mode", NameAdjustmentMode.NONE, "How schema names are adjusted for Avro."
    )
    field_name_adjustment_mode: NameAdjustmentMode = option(
        "field.name.adjustment.mode", NameAdjustmentMode.NONE, "How field names are adjusted for Avro."
    )
    sanitize_field_names: bool = option(
        "sanitize.field.names", False, "Older form of field.name.adjustment.mode=avro; used if that is not set."
    )
    message_key_columns: tuple[KeyRule, ...] = option(
        "message.key.columns",
        (),
        "Columns that form a table's event key instead of its primary key: schema.table:column[,column…];…",
        parse=parse_key_columns,
        names=Named.COLUMNS,
    )
    include_schema_comments: bool = option(
        "include.schema.comments",
        False,
        "Whether column comments are included in the events' schemas.",
        status=PropertyStatus.IGNORED,
        reason="Debezium does not read comments from PostgreSQL, so its events never include them",
    )
    schema_refresh_mode: SchemaRefreshMode = option(
        "schema.refresh.mode",
        SchemaRefreshMode.COLUMNS_DIFF,
        "When a table's schema is refreshed.",
        status=PropertyStatus.IGNORED,
        reason="pgoutput announces each schema change of a table, so both modes behave alike",
    )

    @property
    def field_adjustment(self) -> NameAdjustmentMode:
        """The mode for field names, including the older property."""
        if self.field_name_adjustment_mode is NameAdjustmentMode.NONE and self.sanitize_field_names:
            return NameAdjustmentMode.AVRO
        return self.field_name_adjustment_mode
