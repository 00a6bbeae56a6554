"""Operation ``dbt``: the captured tables as a dbt source, with types, comments, tests and freshness.

Tests are those of the source's catalogue: NOT NULL, and a key of one column. Rules of quality are not repeated in dbt:
a row that fails one does not get into the lake table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.describe import describe
from cdc_core.catalogs import EntryName, NamePatterns
from cdc_core.described import names_in_spark
from cdc_core.schema import TableId, TableSchema, streamed
from cdc_core.selection import chosen_tables

# A value that does not fit its type is null, and its text is there: NOT NULL is not violated.
_FITS = "__rescued is null"
_CURRENT = "__current"
_OF_PATHS = "delta"


def source(context: RunContext, tables: Sequence[TableId] | None, freshness_minutes: int) -> dict[str, Any]:
    """Return the content of a file of sources, for dbt 1.10 or later; None for all captured tables.

    Tables are named as the connector registers them (``wal2lake.catalogs``, or ``wal2lake.lake.catalog.database``);
    without a catalog they are read by their paths. ``freshness_minutes`` 0: freshness is not tested. Raises LakeError
    if the record of the lake's tables, which have names beside those that are captured, cannot be read.
    """
    with context.source() as server:
        captured = [streamed(table) for table in context.captured(server)]
    chosen = captured if tables is None else chosen_tables(captured, tables)
    names = names_in_spark({table.id for table in captured} | context.lake.schema_log.read().keys())
    entries = [(_entry(context, table.id, names), table) for table in chosen]
    databases = dict.fromkeys(entry.database for entry, _ in entries)
    return {
        "version": 2,
        "sources": [
            {
                "name": context.name if len(databases) == 1 else f"{context.name}_{database}",
                "description": f"Lake tables of the connector {context.name}, which wal2lake writes.",
                "schema": database,
                "loader": "wal2lake",
                **({"quoting": {"identifier": True}} if database == _OF_PATHS else {}),
                **_freshness(freshness_minutes),
                "tables": [
                    _table(context, names[table.id], entry, table)
                    for entry, table in entries
                    if entry.database == database
                ],
            }
            for database in databases
        ],
    }


def _entry(context: RunContext, table: TableId, names: Mapping[TableId, str]) -> EntryName:
    """Return the schema and the identifier by which dbt finds a lake table."""
    options = context.config.catalogs
    if options.catalogs:
        return NamePatterns(options.catalogs_database, options.catalogs_table, context.name).of(table)
    database = context.lake.options.lake_catalog_database
    if database:
        return EntryName(database, names[table])
    return EntryName(_OF_PATHS, str(context.lake.paths.lake(table)))


def _freshness(minutes: int) -> dict[str, Any]:
    if not minutes:
        return {}
    limit = {"warn_after": {"count": minutes, "period": "minute"}}
    return {"config": {"freshness": limit, "loaded_at_field": "__commit_ts"}}


def _table(context: RunContext, name: str, entry: EntryName, table: TableSchema) -> dict[str, Any]:
    made = describe(context, table)
    has_versions = any(column.name == _CURRENT for column in made.lake)
    required = {column.name.lower() for column in table.columns if not column.optional}
    unique = {name.lower() for name in table.row_key} if len(table.row_key) == 1 else set[str]()
    columns = []
    for column in made.lake:
        tests: list[Any] = []
        if column.source.lower() in required:
            tests.append({"not_null": {"config": {"where": _FITS}}})
        # Masked and hashed values may be equal where those of the source are not.
        if column.source.lower() in unique and not column.treatment:
            tests.append({"unique": {"config": {"where": _CURRENT}}} if has_versions else "unique")
        columns.append(
            {
                "name": column.name,
                "data_type": column.type,
                **({"description": column.comment} if column.comment else {}),
                **({"data_tests": tests} if tests else {}),
            }
        )
    return {
        "name": name,
        **({"identifier": entry.table} if entry.table != name else {}),
        **({"description": made.comment} if made.comment else {}),
        "columns": columns,
    }
