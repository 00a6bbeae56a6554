"""Options of the captured schemas, tables, columns, operations and messages, and of value transformations."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.option import Named, option, parse_patterns
from cdc_core.schema import TableId

OPERATIONS = ("c", "u", "d", "t")
ROW_OPERATIONS = frozenset("cud")


def parse_skipped_operations(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of c, u, d, t; ``none`` alone for nothing."""
    parts = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    if parts == ("none",) or not parts:
        return ()
    if any(part not in OPERATIONS for part in parts):
        raise ValueError("a comma-separated list of c, u, d, t, or none")
    return parts


def parse_collection(text: str) -> str:
    """Parse ``schema.table``, as ``TableId.of_text`` reads it."""
    TableId.of_text(text)
    return text.strip()


@dataclass(frozen=True, slots=True)
class SelectionOptions:
    """Lists contain regular expressions that must match the entire name, regardless of case (ASCII).

    The families contain one entry per property, in the file's order: ``(N, patterns)`` as texts and patterns for
    truncation and masks, ``(algorithm, salt, patterns)`` for hashes.
    """

    schema_include_list: tuple[str, ...] = option(
        "schema.include.list",
        (),
        "Schemas to capture; empty for all except system schemas.",
        parse=parse_patterns,
        aliases=("schema.whitelist",),
        names=Named.SCHEMAS,
    )
    schema_exclude_list: tuple[str, ...] = option(
        "schema.exclude.list",
        (),
        "Schemas not to capture.",
        parse=parse_patterns,
        aliases=("schema.blacklist",),
        names=Named.SCHEMAS,
    )
    table_include_list: tuple[str, ...] = option(
        "table.include.list",
        (),
        "Tables (schema.table) to capture; empty for all of the captured schemas.",
        parse=parse_patterns,
        aliases=("table.whitelist",),
        names=Named.TABLES,
    )
    table_exclude_list: tuple[str, ...] = option(
        "table.exclude.list",
        (),
        "Tables (schema.table) not to capture.",
        parse=parse_patterns,
        aliases=("table.blacklist",),
        names=Named.TABLES,
    )
    table_ignore_builtin: bool = option(
        "table.ignore.builtin", True, "Whether system tables are excluded regardless of the lists."
    )
    column_include_list: tuple[str, ...] = option(
        "column.include.list",
        (),
        "Columns (schema.table.column) to capture; empty for all.",
        parse=parse_patterns,
        aliases=("column.whitelist",),
        names=Named.COLUMNS,
    )
    column_exclude_list: tuple[str, ...] = option(
        "column.exclude.list",
        (),
        "Columns (schema.table.column) not to capture.",
        parse=parse_patterns,
        aliases=("column.blacklist",),
        names=Named.COLUMNS,
    )
    column_truncate_to_n_chars: tuple[tuple[str, tuple[str, ...]], ...] = option(
        "column.truncate.to.N.chars",
        (),
        "Character columns truncated to N UTF-16 code units.",
        parse=parse_patterns,
        pattern=r"column\.truncate\.to\.(\d+)\.chars",
        names=Named.COLUMNS,
    )
    column_mask_with_n_chars: tuple[tuple[str, tuple[str, ...]], ...] = option(
        "column.mask.with.N.chars",
        (),
        "Character columns replaced by N asterisks, including nulls.",
        parse=parse_patterns,
        pattern=r"column\.mask\.with\.(\d+)\.chars",
        names=Named.COLUMNS,
    )
    column_mask_hash: tuple[tuple[str, str, tuple[str, ...]], ...] = option(
        "column.mask.hash.ALGORITHM.with.salt.SALT",
        (),
        "Character columns replaced by a salted hash of the Java serialisation of their text (version 1).",
        parse=parse_patterns,
        pattern=r"column\.mask\.hash\.(?!v2\.)([^.]+)\.with\.salt\.(.+)",
        names=Named.COLUMNS,
    )
    column_mask_hash_v2: tuple[tuple[str, str, tuple[str, ...]], ...] = option(
        "column.mask.hash.v2.ALGORITHM.with.salt.SALT",
        (),
        "Character columns replaced by a salted hash of their UTF-8 text (version 2).",
        parse=parse_patterns,
        pattern=r"column\.mask\.hash\.v2\.([^.]+)\.with\.salt\.(.+)",
        names=Named.COLUMNS,
    )
    column_propagate_source_type: tuple[str, ...] = option(
        "column.propagate.source.type",
        (),
        "Columns (schema.table.column) whose source type, length and scale are added to the schema's parameters.",
        parse=parse_patterns,
        names=Named.COLUMNS,
    )
    datatype_propagate_source_type: tuple[str, ...] = option(
        "datatype.propagate.source.type",
        (),
        "The same for columns selected by type: schema.table.typename.",
        parse=parse_patterns,
        names=Named.TYPES,
    )
    message_prefix_include_list: tuple[str, ...] = option(
        "message.prefix.include.list",
        (),
        "Prefixes of logical messages to capture; empty for all.",
        parse=parse_patterns,
        names=Named.LATER,
    )
    message_prefix_exclude_list: tuple[str, ...] = option(
        "message.prefix.exclude.list",
        (),
        "Prefixes of logical messages not to capture.",
        parse=parse_patterns,
        names=Named.LATER,
    )
    skipped_operations: tuple[str, ...] = option(
        "skipped.operations",
        ("t",),
        "Operations for which no events are produced: c, u, d, t, or none.",
        parse=parse_skipped_operations,
    )
    signal_data_collection: str = option(
        "signal.data.collection",
        "",
        "Signal table (schema.table); it is always captured.",
        parse=parse_collection,
        names=Named.TABLE,
    )

    @property
    def signal_table(self) -> TableId | None:
        """The table of signal.data.collection; a leading database name is removed."""
        return TableId.of_text(self.signal_data_collection) if self.signal_data_collection else None
