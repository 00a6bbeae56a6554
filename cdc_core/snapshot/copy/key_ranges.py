"""Ranges of a table's key, for tables whose page ranges cannot be read.

This applies to servers older than 14, and to a role that may read single columns only, which do not include ``ctid``.
The ranges are equal intervals of values, so they have about equally many rows if the key's values are evenly
distributed. The result is exact in any case: each row of the snapshot has one value of the key, and the first and the
last range are unbounded.
"""

from __future__ import annotations

from cdc_core.postgres import KeyBounds, range_condition
from cdc_core.schema import PgType, TableSchema, TypeKind

_INTEGERS = frozenset({"int2", "int4", "int8"})
_MOST_RANGES = 10_000
# If rows are stored in another order than the key's, each range reads most of the pages.
_LEAST_CORRELATION = 0.8


def key_column(table: TableSchema) -> str | None:
    """Return the column by which a table can be divided: the first of its primary key, if that is an integer.

    None for a partitioned table: its leaves are its ranges.
    """
    if not table.primary_key or table.fingerprint is None or table.is_partitioned:
        return None
    types = {column.name: column.type for column in table.columns}
    column_type = types.get(table.primary_key[0])
    return table.primary_key[0] if column_type is not None and _is_integer(column_type) else None


def key_conditions(column: str, bounds: KeyBounds, rows: int, rows_per_range: int) -> list[str]:
    """Return SQL conditions for about ``rows_per_range`` rows each that together match each row; [""] for one range."""
    if bounds.correlation is not None and abs(bounds.correlation) < _LEAST_CORRELATION:
        return [""]
    span = bounds.high - bounds.low + 1
    count = max(1, min(_MOST_RANGES, -(-rows // max(1, rows_per_range)), span))
    inner = [bounds.low + span * number // count for number in range(1, count)]
    starts: list[int | None] = [None, *inner]
    ends: list[int | None] = [*inner, None]
    return [range_condition(column, start, end) for start, end in zip(starts, ends, strict=True)]


def _is_integer(column_type: PgType) -> bool:
    return column_type.kind is TypeKind.BASE and column_type.namespace == "pg_catalog" and column_type.name in _INTEGERS
