"""The images of change rows as columns, and conversion of ``__rescued`` to texts by column and back, on Arrow.

A value that its column's natural type cannot represent is null in the column and text in the row's ``__rescued`` map.
So a column's value is a pair, and code that selects values by row must select texts by the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools

TEXTS = pa.map_(pa.string(), pa.string())
_ENTRIES = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))


def column(table: pa.Table, name: str) -> pa.Array:
    """Return a column of a table as one array."""
    return joined(table.column(name))


def joined(values: pa.ChunkedArray) -> pa.Array:
    """Return a chunked array as one array."""
    if values.num_chunks == 1:
        return values.chunk(0)
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.nulls(0, values.type)


def image(rows: pa.Table, name: str) -> pa.Table:
    """Return the fields of a struct column; null where the struct is null. Shape: rows[N] -> table[N]."""
    struct = column(rows, name)
    return pa.Table.from_arrays(struct.flatten(), names=[field.name for field in struct.type])


def validity(values: pa.Array) -> Bools:
    """Return where values are not null. Shape: array[N] -> bool[N]."""
    if not values.null_count:
        return np.ones(len(values), dtype=bool)
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False))


def indices(places: np.ndarray) -> pa.Array:
    """Return indexes for ``take``; negative ones become null. Shape: int[N] -> int64[N]."""
    lost = places < 0
    return pa.array(places, pa.int64(), mask=lost if lost.any() else None)


def chosen(mask: np.ndarray, yes: pa.Array, no: pa.Array) -> pa.Array:
    """Return ``yes`` where ``mask``, else ``no``, for every type. Shape: bool[N], array[N], array[N] -> array[N]."""
    if not mask.any():
        return no
    if mask.all():  # not copied: a value may be large
        return yes
    places = np.arange(len(mask))
    return pa.concat_arrays([yes, no]).take(pa.array(np.where(mask, places, places + len(mask))))


def texts_of(rescued: pa.Array) -> dict[str, pa.Array]:
    """Return ``__rescued`` by column name, null if there is no text. Shape: map<string,string>[N] -> string[N] each."""
    count = len(rescued)
    if rescued.null_count == count:
        return {}
    entries = rescued.cast(_ENTRIES)
    lengths = pc.fill_null(pc.list_value_length(entries), 0).to_numpy()
    rows = np.repeat(np.arange(count), lengths)
    names, values = entries.flatten().flatten()
    out = {}
    for name in names.unique().to_pylist():
        mine = np.flatnonzero(pc.equal(names, name).to_numpy(zero_copy_only=False))
        at = np.full(count, -1, dtype=np.int64)
        at[rows[mine]] = mine
        out[name] = values.take(indices(at))
    return out


def rescued_of(texts: Mapping[str, pa.Array], count: int) -> pa.Array:
    """The inverse of ``texts_of``: a row without any text is null. Shape: string[N] each -> map<string,string>[N]."""
    present = {name: values for name, values in texts.items() if values.null_count < count}
    if not present:
        return pa.nulls(count, TEXTS)
    grid = np.stack([validity(values) for values in present.values()], axis=1)
    rows, which = np.nonzero(grid)
    names = pa.array(list(present), pa.string()).take(pa.array(which))
    # The columns are concatenated, so that (row, column) is one index into the result.
    values = pa.concat_arrays(list(present.values())).take(pa.array(which * count + rows))
    offsets = np.concatenate(([0], np.cumsum(grid.sum(axis=1)))).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(offsets), names, values, mask=pa.array(~grid.any(axis=1)))
