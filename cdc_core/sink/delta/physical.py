"""The names that columns bear in data files: others than the table's own once column mapping is on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_NAME = b"delta.columnMapping.physicalName"


def physical_schema(schema: pa.Schema) -> pa.Schema:
    """The schema as data files have it, fields inside of structs included. ``schema`` is with its metadata."""
    return pa.schema([_field(each) for each in schema])


def renamed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same columns in the same order under the names of ``schema``, inside of structs too."""
    arrays = [
        pa.chunked_array([_array(chunk, each.type) for chunk in values.chunks], each.type)
        for values, each in zip(rows.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _field(field: pa.Field) -> pa.Field:
    name = (field.metadata or {}).get(_NAME)
    return pa.field(field.name if name is None else name.decode(), _type(field.type))


def _type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_field(each) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(_type(kind.key_type), _type(kind.item_type))
    return pa.list_(_type(kind.value_type)) if pa.types.is_list(kind) else kind


def _array(values: pa.Array, want: pa.DataType) -> pa.Array:
    if values.type.equals(want):
        return values
    gone = values.is_null()
    if pa.types.is_struct(want):
        inside = [_array(part, each.type) for part, each in zip(_parts(values), want, strict=True)]
        return pa.StructArray.from_arrays(inside, fields=list(want), mask=gone)
    # Offsets as they are belong to the whole array, so one that is a part of another is copied first.
    values = values.take(pa.array(np.arange(len(values)))) if values.offset else values
    if pa.types.is_map(want):
        keys, items = _array(values.keys, want.key_type), _array(values.items, want.item_type)
        return pa.MapArray.from_arrays(values.offsets, keys, items, type=want, mask=gone)
    return pa.ListArray.from_arrays(values.offsets, _array(values.values, want.value_type), type=want, mask=gone)


def _parts(values: pa.StructArray) -> list[pa.Array]:
    return [values.field(number) for number in range(values.type.num_fields)]
