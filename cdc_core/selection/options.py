"""Options of the captured schemas, tables, columns, operations and messages, and of value transformations."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.option import option, parse_patterns

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
    """Parse ``schema.table``; a leading database name is removed."""
    parts = text.strip().split(".")
    if len(parts) not in (2, 3) or not all(parts):
        raise ValueError("schema.table")
    return ".".join(parts[-2:])


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
    )
    schema_exclude_list: tuple[str, ...] = option(
        "schema.exclude.list", (), "Schemas not to capture.", parse=parse_patterns, aliases=("schema.blacklist",)
    )
    table_include_list: tuple[str, ...] = option(
        "table.include.list",
        (),
        "Tables (schema.table) to capture; empty for all of the captured schemas.",
        parse=parse_patterns,
        aliases=("table.whitelist",),
    )
    table_exclude_list: tuple[str, ...] = option(
        "table.exclude.list",
        (),
        "Tables (schema.table) not to capture.",
        parse=parse_patterns,
        aliases=("table.blacklist",),
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
    )
    column_exclude_list: tuple[str, ...] = option(
        "column.exclude.list",
        (),
        "Columns (schema.table.column) not to capture.",
        parse=parse_patterns,
        aliases=("column.blacklist",),
    )
    column_truncate_to_n_chars: tuple[tuple[str, tuple[str, ...]], ...] = option(
        "column.truncate.to.N.chars",
        (),
        "Character columns truncated to N UTF-16 code units.",
        parse=parse_patterns,
        pattern=r"column\.truncate\.to\.(\d+)\.chars",
    )
    column_mask_with_n_chars: tuple[tuple[str, tuple[str, ...]], ...] = option(
        "column.mask.with.N.chars",
        (),
        "Character columns replaced by N asterisks, including nulls.",
        parse=parse_patterns,
        pattern=r"column\.mask\.with\.(\d+)\.chars",
    )
    column_mask_hash: tuple[tuple[str, str, tuple[str, ...]], ...] = option(
        "column.mask.hash.ALGORITHM.with.salt.SALT",
        (),
        "Character columns replaced by a salted hash of the Java serialisation of their text (version 1).",
        parse=parse_patterns,
        pattern=r"column\.mask\.hash\.(?!v2\.)([^.]+)\.with\.salt\.(.+)",
    )
    column_mask_hash_v2: tuple[tuple[str, str, tuple[str, ...]], ...] = option(
        "column.mask.hash.v2.ALGORITHM.with.salt.SALT",
        (),
        "Character columns replaced by a salted hash of their UTF-8 text (version 2).",
        parse=parse_patterns,
        pattern=r"column\.mask\.hash\.v2\.([^.]+)\.with\.salt\.(.+)",
    )
    column_propagate_source_type: tuple[str, ...] = option(
        "column.propagate.source.type",
        (),
        "Columns (schema.table.column) whose source type, length and scale are added to the schema's parameters.",
        parse=parse_patterns,
    )
    datatype_propagate_source_type: tuple[str, ...] = option(
        "datatype.propagate.source.type",
        (),
        "The same for columns selected by type: schema.table.typename.",
        parse=parse_patterns,
    )
    message_prefix_include_list: tuple[str, ...] = option(
        "message.prefix.include.list",
        (),
        "Prefixes of logical messages to capture; empty for all.",
        parse=parse_patterns,
    )
    message_prefix_exclude_list: tuple[str, ...] = option(
        "message.prefix.exclude.list", (), "Prefixes of logical messages not to capture.", parse=parse_patterns
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
    )
