"""Ranges of a table's key, where ranges of its pages cannot be read: on servers older than 14, and by a role that may
read single columns only, of which ``ctid`` is none.

They are ranges of values, evenly cut, so rows lie evenly in them where the key's values do. What is read is exact in
any case: each row of the snapshot has one value of the key, and the first and the last range have no end.
"""

from __future__ import annotations

from cdc_core.postgres.key_bounds import KeyBounds, range_condition
from cdc_core.schema.pg_type import PgType, TypeKind
from cdc_core.schema.table import TableSchema

_INTEGERS = frozenset({"int2", "int4", "int8"})
_MOST_RANGES = 10_000
# Rows that lie in the pages in another order than the key's have each range read most of the pages.
_LEAST_CORRELATION = 0.8


def key_column(table: TableSchema) -> str | None:
    """The column by which a table can be cut: the first of its primary key, where that is an integer.

    None for a partitioned table: its leaves are its ranges.
    """
    if not table.primary_key or table.fingerprint is None or table.fingerprint.is_partitioned:
        return None
    types = {column.name: column.type for column in table.columns}
    found = types.get(table.primary_key[0])
    return table.primary_key[0] if found is not None and _is_integer(found) else None


def key_conditions(column: str, bounds: KeyBounds, rows: int, rows_per_range: int) -> list[str]:
    """The SQL conditions of about ``rows_per_range`` rows each that together hold for every row; [""] for no cut."""
    if bounds.correlation is not None and abs(bounds.correlation) < _LEAST_CORRELATION:
        return [""]
    span = bounds.high - bounds.low + 1
    count = max(1, min(_MOST_RANGES, -(-rows // max(1, rows_per_range)), span))
    inner = [bounds.low + span * number // count for number in range(1, count)]
    starts: list[int | None] = [None, *inner]
    ends: list[int | None] = [*inner, None]
    return [range_condition(column, start, end) for start, end in zip(starts, ends, strict=True)]


def _is_integer(one: PgType) -> bool:
    return one.kind is TypeKind.BASE and one.namespace == "pg_catalog" and one.name in _INTEGERS
