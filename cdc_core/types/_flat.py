"""A string array as one sequence of bytes: shared by the vectorized parsers of structured text."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools, Bytes, Ints

_BACKSLASH = 0x5C


def flatten(text: pa.Array) -> tuple[Bytes, Ints, Ints, Bools]:
    """Return the bytes of a string or binary array, each row's start and end in them, and which rows are not null.

    Slices share the buffer of their entire array; nulls are empty.
    """
    count = len(text)
    if count == 0:
        return np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, bool)
    _, offsets_buffer, data_buffer = text.buffers()
    wide = pa.types.is_large_string(text.type) or pa.types.is_large_binary(text.type)
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64 if wide else np.int32)
    bounds = offsets[text.offset : text.offset + count + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    starts, ends = bounds[:-1], bounds[1:]
    if text.null_count == 0:
        return data, starts, ends, np.ones(count, dtype=bool)
    valid = text.is_valid().to_numpy(zero_copy_only=False)
    return data, starts, np.where(valid, ends, starts), valid


def gather(data: Bytes, starts: Ints, ends: Ints) -> tuple[Bytes, Ints, Ints]:
    """Return the concatenated bytes of these rows, and the bounds in them."""
    if not len(starts):
        return data[:0], starts, ends
    if bool(np.all(ends[:-1] == starts[1:])):
        return data[starts[0] : ends[-1]], starts - starts[0], ends - starts[0]
    lengths = ends - starts
    new_ends = np.cumsum(lengths)
    new_starts = new_ends - lengths
    return data[np.arange(new_ends[-1]) + np.repeat(starts - new_starts, lengths)], new_starts, new_ends


def per_row(mask: Bools, starts: Ints) -> Ints:
    """Count the marked bytes of each row; rows are adjacent and cover the mask."""
    if not len(starts):
        return np.empty(0, np.int64)
    before = running_count(mask)
    bounds = np.append(starts, len(mask))
    counts: Ints = np.diff(before[bounds]).astype(np.int64)
    return counts


def running_count(mask: Bools) -> npt.NDArray[np.int32]:
    """Return the number of marked bytes before each index, and before the end."""
    counts = np.zeros(len(mask) + 1, dtype=np.int32)
    np.cumsum(mask, out=counts[1:])
    return counts


def escaped_bytes(data: Bytes) -> tuple[Bools, Bools]:
    """Return which backslashes escape the next byte, and which bytes are escaped by one.

    In a run of backslashes every second one is itself escaped, so the parity of the index in its run decides.
    """
    slashes = data == _BACKSLASH
    escaped = np.zeros(len(data), dtype=bool)
    places = np.flatnonzero(slashes)
    if not len(places):
        return slashes, escaped
    fresh = np.empty(len(places), dtype=bool)
    fresh[0] = True
    np.not_equal(places[1:], places[:-1] + 1, out=fresh[1:])
    run_start = places[np.maximum.accumulate(np.where(fresh, np.arange(len(places)), 0))]
    active = places[(places - run_start) % 2 == 0]
    escapes = np.zeros(len(data), dtype=bool)
    escapes[active] = True
    following = active[active + 1 < len(data)] + 1
    escaped[following] = True
    return escapes, escaped


def strings_from(data: Bytes, keep: Bools, lefts: Ints, rights: Ints, lengths: Ints) -> pa.StringArray:
    """Return one string per span [left, right): its bytes in ``keep``. Spans ascend; ``lengths`` count kept bytes."""
    if not len(lefts):
        return pa.array([], pa.string())
    # Spans never overlap, so one mark per border and its parity distinguish inside from outside; empty spans cancel
    # out.
    borders = np.zeros(len(data) + 1, dtype=np.uint8)
    filled = rights > lefts
    borders[lefts[filled]] ^= 1
    borders[rights[filled]] ^= 1
    inside = np.cumsum(borders[:-1], dtype=np.uint8) & 1
    chosen = keep & inside.view(np.bool_)
    offsets = np.zeros(len(lefts) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.StringArray.from_buffers(len(lefts), pa.py_buffer(offsets), pa.py_buffer(data[chosen]))


def masked(values: pa.Array, missing: Bools) -> pa.Array:
    """Return the values, null where ``missing``."""
    return pc.if_else(pa.array(missing), pa.scalar(None, values.type), values) if missing.any() else values


def marked(bad: Bools) -> pa.BooleanArray | None:
    """Return ``Converted.bad`` for a mask: None if nothing is bad."""
    return pa.array(bad) if bad.any() else None
