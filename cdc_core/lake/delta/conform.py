"""Converts Arrow tables to a Delta table's schema: its columns in its order, all nullable, in plain layouts."""

from __future__ import annotations

import pyarrow as pa


def conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return ``rows`` with exactly the columns of ``schema``, in its order and types; missing columns are null.

    Raises pyarrow's ArrowInvalid if a value cannot be represented in the type.
    """
    if rows.schema.equals(schema):
        return rows
    by_name = {name.lower(): name for name in rows.schema.names}
    arrays = [
        _conformed(rows.column(by_name[field.name.lower()]), field.type)
        if field.name.lower() in by_name
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with every field, element and value nullable, in Arrow's plain layouts, without metadata."""
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with every nested field nullable; large and view layouts become the plain ones."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def has_local_timestamps(schema: pa.Schema) -> bool:
    """Whether some column, at any depth, is a timestamp without time zone."""
    return any(_is_local(field.type) for field in schema)


def _conformed(values: pa.ChunkedArray, want: pa.DataType) -> pa.ChunkedArray:
    have = values.type
    if have.equals(want):
        return values
    if pa.types.is_struct(have) and pa.types.is_struct(want):
        return pa.chunked_array([_struct(chunk, want) for chunk in values.chunks], type=want)
    return values.cast(want)


def _struct(values: pa.StructArray, want: pa.StructType) -> pa.StructArray:
    by_name = {values.type.field(n).name.lower(): n for n in range(values.type.num_fields)}
    arrays = []
    for field in want:
        at = by_name.get(field.name.lower())
        if at is None:
            arrays.append(pa.nulls(len(values), field.type))
            continue
        inner = pa.chunked_array([values.field(at)])
        arrays.append(_conformed(inner, field.type).combine_chunks())
    arrays = [array.chunk(0) if isinstance(array, pa.ChunkedArray) else array for array in arrays]
    return pa.StructArray.from_arrays(arrays, fields=list(want), mask=values.is_null())


def _is_local(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return any(_is_local(kind.field(n).type) for n in range(kind.num_fields))
