"""Converts change rows to JSON text, by SQL: for the quarantine table's ``row`` and ``key`` columns.

Binary values are base64 text, timestamps ISO 8601, floats without a JSON number are text (NaN, Infinity); everything
else is as written by DuckDB's to_json, decimals with all their digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import pyarrow as pa

from cdc_core.quality.rules import literal, quote


def row_json_sql(schema: pa.Schema) -> str:
    """Return the SQL for one JSON object per row over the columns of ``schema``; nulls are kept."""
    names = (f"e{number}" for number in count())
    parts = [f"{literal(column.name)}: {_value(quote(column.name), column.type, names)}" for column in schema]
    return f"to_json({{{', '.join(parts)}}})::VARCHAR"


def key_json_sql(schema: pa.Schema, key: Sequence[str]) -> str:
    """Return the SQL for one JSON object per row with the columns ``key`` of the changed row; null without a key.

    A key that an update omitted as unchanged is in the old image.
    """
    names = (f"k{number}" for number in count())
    parts = []
    for name in key:
        images = [image for image in ("after", "before") if schema.field(image).type.get_field_index(name) >= 0]
        if not images:
            return "NULL::VARCHAR"
        kind = schema.field(images[0]).type.field(name).type
        values = ", ".join(f"{image}.{quote(name)}" for image in images)
        parts.append(f"{literal(name)}: {_value(f'coalesce({values})', kind, names)}")
    return f"to_json({{{', '.join(parts)}}})::VARCHAR" if parts else "NULL::VARCHAR"


def _value(sql: str, kind: pa.DataType, names: Iterator[str]) -> str:
    """Return the SQL for a value of type ``kind`` with which to_json writes it as described above."""
    if not _needs_care(kind):
        return sql
    if pa.types.is_floating(kind):
        finite = f"WHEN isfinite({sql}) THEN to_json({sql})"
        return f"CASE {finite} WHEN isnan({sql}) THEN '\"NaN\"'::JSON {_infinity(sql)} END"
    if pa.types.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        local = f"({sql} AT TIME ZONE 'UTC')" if kind.tz else sql
        return f"strftime({local}, '%Y-%m-%dT%H:%M:%S.%f{zone}')"
    if pa.types.is_struct(kind):
        parts = [f"{literal(part.name)}: {_value(f'{sql}.{quote(part.name)}', part.type, names)}" for part in kind]
        return f"CASE WHEN {sql} IS NOT NULL THEN {{{', '.join(parts)}}} END"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        name = next(names)
        return f"list_transform({sql}, lambda {name}: {_value(name, kind.value_type, names)})"
    return f"to_base64({sql})"


def _infinity(sql: str) -> str:
    return f"WHEN {sql} > 0 THEN '\"Infinity\"'::JSON WHEN {sql} < 0 THEN '\"-Infinity\"'::JSON"


def _needs_care(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_needs_care(part.type) for part in kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _needs_care(kind.value_type)
    return bool(
        pa.types.is_floating(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )
