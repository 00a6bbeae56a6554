"""Column names in data files: with column mapping they differ from the table's column names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def renamed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the same columns in the same order with the names of ``schema``, in nested structs too."""
    arrays = [
        pa.chunked_array([_array(chunk, field.type) for chunk in values.chunks], field.type)
        for values, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(values: pa.Array, want: pa.DataType) -> pa.Array:
    if values.type.equals(want):
        return values
    gone = values.is_null()
    if pa.types.is_struct(want):
        inside = [_array(part, field.type) for part, field in zip(_parts(values), want, strict=True)]
        return pa.StructArray.from_arrays(inside, fields=list(want), mask=gone)
    # The offsets of a slice refer to the entire array, so a slice is copied first.
    values = values.take(pa.array(np.arange(len(values)))) if values.offset else values
    if pa.types.is_map(want):
        keys, items = _array(values.keys, want.key_type), _array(values.items, want.item_type)
        return pa.MapArray.from_arrays(values.offsets, keys, items, type=want, mask=gone)
    return pa.ListArray.from_arrays(values.offsets, _array(values.values, want.value_type), type=want, mask=gone)


def _parts(values: pa.StructArray) -> list[pa.Array]:
    return [values.field(number) for number in range(values.type.num_fields)]
