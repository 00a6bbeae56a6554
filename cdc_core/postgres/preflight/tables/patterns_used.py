"""Checks whether each expression that excludes, masks or narrows something matches a schema, table or column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from cdc_core.option import MASK
from cdc_core.postgres.preflight.context import Context
from cdc_core.postgres.preflight.finding import Finding, doubtful
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.selection.options import SelectionOptions
from cdc_core.selection.patterns import compile_pattern

NAME = "unused expressions"


def check(context: Context) -> list[Finding]:
    """Run the check."""
    return verdicts(context.selection, context.names, context.tables)


def verdicts(selection: SelectionOptions, names: Sequence[TableId], tables: Sequence[TableSchema]) -> list[Finding]:
    """Report expressions that match nothing; no finding if there are none.

    ``names``: all existing tables. ``tables``: the captured ones, whose columns are selected. table.include.list has
    its own check.
    """
    schemas = sorted({name.schema for name in names})
    columns = [f"{table.id}.{column.name}" for table in tables for column in table.columns]
    lists: list[tuple[str, Sequence[str], Iterable[str], str]] = [
        ("schema.include.list", selection.schema_include_list, schemas, "schema with tables"),
        ("schema.exclude.list", selection.schema_exclude_list, schemas, "schema with tables"),
        ("table.exclude.list", selection.table_exclude_list, [str(name) for name in names], "table"),
        *((name, patterns, columns, "column of a captured table") for name, patterns in _of_columns(selection)),
    ]
    return [
        doubtful(
            NAME,
            f"The expression {pattern} of {name} matches no {what}.",
            "Correct or remove it; it must match the entire name, for columns schema.table.column.",
        )
        for name, patterns, candidates, what in lists
        for pattern in patterns
        if not _matches(compile_pattern(pattern).fullmatch, candidates)
    ]


def _of_columns(selection: SelectionOptions) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "column.include.list", selection.column_include_list
    yield "column.exclude.list", selection.column_exclude_list
    for length, patterns in selection.column_truncate_to_n_chars:
        yield f"column.truncate.to.{length}.chars", patterns
    for length, patterns in selection.column_mask_with_n_chars:
        yield f"column.mask.with.{length}.chars", patterns
    for version, hashes in (("", selection.column_mask_hash), ("v2.", selection.column_mask_hash_v2)):
        for algorithm, _, patterns in hashes:
            yield f"column.mask.hash.{version}{algorithm}.with.salt.{MASK}", patterns


def _matches(matching: Callable[[str], object], candidates: Iterable[str]) -> bool:
    return any(matching(name) is not None for name in candidates)
