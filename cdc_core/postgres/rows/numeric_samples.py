"""A sample of numeric columns whose values the lake's decimal may not hold.

A column without precision and scale, or with more than 38 digits, is a decimal of 38 digits in the lake. Values that do
not fit are no error, they are stored as text in ``__rescued``; but nobody should find that out from nulls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import psycopg
import pyarrow as pa
from psycopg import sql

from cdc_core.postgres.connection import Connection
from cdc_core.postgres.rows.copy_out import own_rows_sql
from cdc_core.postgres.sqlstate import one_row
from cdc_core.schema import Column, PgType, TableId, TableSchema, TypeKind
from cdc_core.selection import SelectionOptions, plan_columns
from cdc_core.types import natural_type, numeric_precision_scale

_NUMERIC = 1700
_WIDEST = 38
_ROWS, _PAGES, _PAGE_BYTES = 20_000, 500, 8192
_LIMITS = "SET LOCAL statement_timeout = '5s'; SET LOCAL lock_timeout = '500ms'; SET TRANSACTION READ ONLY"


@dataclass(frozen=True, slots=True)
class Misfits:
    """``misfits`` of ``rows`` sampled rows have a value in ``column`` that ``lake_type`` does not hold exactly."""

    table: TableId
    column: str
    lake_type: str
    rows: int
    misfits: int

    def __str__(self) -> str:
        share = f"{100 * self.misfits / self.rows:.2g} %"
        return (
            f"{share} of {self.rows:,} sampled rows of {self.table} have a value in {self.column} that its type in the "
            f"lake, {self.lake_type}, does not hold: the column is null there, and __rescued has the value as text."
        )


REMEDY = "Give the column a precision and scale of at most 38 digits that hold its values, or read __rescued as well."


def sample_misfits(
    connection: Connection, tables: Iterable[TableSchema], selection: SelectionOptions
) -> Iterator[Misfits]:
    """Yield the columns of which the sample has such values. A table that cannot be read now is passed over."""
    for table in tables:
        columns = doubtful_columns(table, selection)
        if not columns:
            continue
        try:
            with connection.transaction():
                connection.execute(_LIMITS)
                row = one_row(connection, _query(connection, table, columns))
        except psycopg.Error:
            continue
        for (column, kind), misfits in zip(columns.items(), row[1:], strict=True):
            if misfits:
                yield Misfits(table.id, column, f"decimal({kind.precision},{kind.scale})", row[0], misfits)


def doubtful_columns(table: TableSchema, selection: SelectionOptions) -> dict[str, pa.Decimal128Type]:
    """Return the captured columns whose decimal may be too small, with its type."""
    captured = {plan.name for plan in plan_columns(table, selection) if plan.included and plan.mapper is None}
    doubtful = {}
    for column in table.columns:
        base, modifier = _base(column)
        if base.oid != _NUMERIC or column.name not in captured:
            continue
        declared = numeric_precision_scale(modifier)
        if declared is None or max(declared) > _WIDEST or declared[0] - min(declared[1], 0) > _WIDEST:
            doubtful[column.name] = natural_type(declared)
    return doubtful


def _base(column: Column) -> tuple[PgType, int]:
    kind, modifier = column.type, column.modifier
    while kind.kind is TypeKind.DOMAIN and kind.inner is not None:
        modifier = kind.inner_modifier if kind.inner_modifier != -1 else modifier
        kind = kind.inner
    return kind, modifier


def _query(connection: Connection, table: TableSchema, columns: dict[str, pa.Decimal128Type]) -> sql.Composed:
    (size,) = one_row(connection, "SELECT pg_relation_size(%s::oid)", (table.oid,))
    pages = (size or 0) // _PAGE_BYTES
    sample = sql.SQL(f" TABLESAMPLE SYSTEM ({100 * _PAGES / pages:.4f})" if pages > _PAGES else "")
    counts = [
        sql.SQL("count(*) FILTER (WHERE abs({0}) >= 1e{1} OR {0} <> trunc({0}, {2}))").format(
            sql.Identifier(name), sql.SQL(str(kind.precision - kind.scale)), sql.Literal(kind.scale)
        )
        for name, kind in columns.items()
    ]
    rows = sql.SQL(own_rows_sql(table, list(columns)))
    return sql.SQL("SELECT count(*), {} FROM ({}{} LIMIT {}) AS sampled").format(
        sql.SQL(", ").join(counts), rows, sample, sql.Literal(_ROWS)
    )
