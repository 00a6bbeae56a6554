"""Columns of source and lake tables as Dagster shows them: their types, keys, comments, and where values come from."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import dagster as dg

from cdc_core.schema import Column, PgType, TableSchema, TypeKind

_LENGTH_HEADER = 4
_NAMES = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "halffloat": "float",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date32[day]": "date",
}
_OWN = {
    "__rescued": "Values that do not fit into the column's type, as text, by the column's name.",
    "__commit_lsn": "LSN of the commit that wrote the row: its position in the source's WAL.",
    "__tx_index": "Number of the change within its transaction.",
    "__commit_ts": "Time of that commit.",
    "__deleted": "Whether the row was deleted in the source.",
    "__current": "Whether this version of the row is the one that the source has.",
    "__valid_from_lsn": "LSN from which on the version was valid.",
    "__valid_to_lsn": "LSN at which the version ended; null for the current one.",
    "__valid_to_index": "Number of the change, within its transaction, that ended the version.",
    "__valid_from": "Time from which on the version was valid.",
    "__valid_to": "Time at which the version ended; null for the current one.",
}


def source_columns(table: TableSchema) -> dg.TableSchema:
    """The source's columns with their PostgreSQL types."""
    return dg.TableSchema(
        columns=[_column(table, column, type_text(column), column.comment or "") for column in table.columns]
    )


def lake_columns(table: TableSchema, lake: Iterable[Any]) -> dg.TableSchema:
    """The lake table's columns (Arrow fields): the lake's types, together with the source's."""
    by_name = {column.name.lower(): column for column in table.columns}
    return dg.TableSchema(columns=[_lake_column(table, field, by_name.get(field.name.lower())) for field in lake])


def column_lineage(table: TableSchema, source: dg.AssetKey, lake: Collection[str]) -> dg.TableColumnLineage:
    """Column lineage from the source table to the lake table. Names differ only in case."""
    in_lake = {name.lower(): name for name in lake}
    return dg.TableColumnLineage(
        {
            in_lake[column.name.lower()]: [dg.TableColumnDep(asset_key=source, column_name=column.name)]
            for column in table.columns
            if column.name.lower() in in_lake
        }
    )


def type_text(column: Column) -> str:
    """The column's type in PostgreSQL, similar to psql: ``varchar(20)``, ``numeric(12,2)``, ``int4[]``."""
    return _type_text(column.type, column.modifier)


def lake_type_text(kind: Any) -> str:
    """An Arrow type as Delta's readers name it: ``bigint``, ``decimal(12,2)``, ``array<string>``."""
    text = str(kind)
    if text.startswith("decimal"):
        text = f"decimal({kind.precision},{kind.scale})"
    elif text.startswith("timestamp"):
        text = "timestamp" if kind.tz else "timestamp_ntz"
    elif text.startswith("map<"):
        text = f"map<{lake_type_text(kind.key_type)},{lake_type_text(kind.item_type)}>"
    elif text.startswith("list<"):
        text = f"array<{lake_type_text(kind.value_type)}>"
    elif text.startswith("struct<"):
        text = f"struct<{','.join(f'{field.name}:{lake_type_text(field.type)}' for field in kind)}>"
    return _NAMES.get(text, text)


def _lake_column(table: TableSchema, field: Any, source: Column | None) -> dg.TableColumn:
    kind = lake_type_text(field.type)
    if source is None:
        own = _OWN.get(field.name, "No longer a column of the source: null in rows that were written since.")
        return dg.TableColumn(field.name, type=kind, description=own)
    beside = f"{type_text(source)} in PostgreSQL" + (f", {source.name}" if source.name != field.name else "")
    told = f"{beside}. {source.comment}" if source.comment else beside
    return _column(table, source, kind, told, field.name)


def _column(table: TableSchema, column: Column, kind: str, description: str, name: str = "") -> dg.TableColumn:
    return dg.TableColumn(
        name or column.name,
        type=kind,
        description=description or None,
        constraints=dg.TableColumnConstraints(nullable=column.optional, unique=table.lake_key == (column.name,)),
    )


def _type_text(kind: PgType, modifier: int) -> str:
    if kind.kind is TypeKind.ARRAY and kind.inner is not None:
        return f"{_type_text(kind.inner, modifier)}[]"
    if modifier >= _LENGTH_HEADER and kind.name in ("varchar", "bpchar"):
        return f"{kind.name}({modifier - _LENGTH_HEADER})"
    if modifier >= _LENGTH_HEADER and kind.name == "numeric":
        packed = modifier - _LENGTH_HEADER
        # The scale is an eleven-bit signed number since PostgreSQL 15.
        return f"numeric({packed >> 16},{((packed & 0x7FF) ^ 1024) - 1024})"
    return kind.name
