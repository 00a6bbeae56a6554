"""Columns of source and lake tables as Dagster shows them: their types, keys, comments, and where values come from."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import dagster as dg

from cdc_core.described import DescribedColumn, lake_column, type_text
from cdc_core.schema import Column, TableSchema


def source_columns(table: TableSchema) -> dg.TableSchema:
    """The source's columns with their PostgreSQL types."""
    return dg.TableSchema(
        columns=[_column(table, column, type_text(column), column.comment or "") for column in table.columns]
    )


def lake_columns(table: TableSchema, lake: Iterable[Any]) -> dg.TableSchema:
    """The lake table's columns (Arrow fields): the lake's types, together with the source's."""
    by_name = {column.name: column for column in table.columns}
    shown = [lake_column(table, field, {}) for field in lake]
    return dg.TableSchema(columns=[_lake_column(table, each, by_name.get(each.source)) for each in shown])


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


def _lake_column(table: TableSchema, shown: DescribedColumn, source: Column | None) -> dg.TableColumn:
    if source is None:
        return dg.TableColumn(shown.name, type=shown.type, description=shown.comment)
    beside = f"{type_text(source)} in PostgreSQL" + (f", {source.name}" if source.name != shown.name else "")
    told = f"{beside}. {source.comment}" if source.comment else beside
    return _column(table, source, shown.type, told, shown.name)


def _column(table: TableSchema, column: Column, kind: str, description: str, name: str = "") -> dg.TableColumn:
    return dg.TableColumn(
        name or column.name,
        type=kind,
        description=description or None,
        constraints=dg.TableColumnConstraints(nullable=column.optional, unique=table.lake_key == (column.name,)),
    )
