"""Gathers byte ranges of one buffer into Arrow arrays."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from cdc_core.errors import NotUtf8Error

INT32_MAX = 2**31 - 1
_LARGE_BYTES = 1 << 20


def gather_binary(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> pa.Array:
    """Gather byte ranges into binary[N].

    Shape: ``starts[N]``, ``ends[N]`` are offsets into ``data`` with starts[i] <= ends[i] <= starts[i + 1]; the last end
    is less than 2 GiB after the first start.

    Nulls: none.

    The ranges and the gaps between them are one binary array over the unchanged buffer; taking every second element is
    a single copy in C++. A single range of megabytes is not copied.
    """
    count = len(starts)
    if count == 0:
        return pa.array([], type=pa.binary())
    base = int(starts[0])
    if count == 1 and (length := int(ends[0]) - base) > _LARGE_BYTES:
        whole = pa.py_buffer(np.array([0, length], dtype=np.int32))
        return pa.Array.from_buffers(pa.binary(), 1, [None, whole, pa.py_buffer(data[base : base + length])])
    bounds = np.empty(2 * count, dtype=np.int32)
    bounds[0::2] = starts - base
    bounds[1::2] = ends - base
    window = pa.py_buffer(data[base : int(ends[-1])])
    ranges = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), window])
    return ranges.take(_even_indices(count))


def as_text(
    values: pa.Array, null: np.ndarray | None, relation: str, column: str, lsn: np.ndarray | None = None
) -> pa.Array:
    """Convert values returned by ``gather_binary`` to text.

    Shape:  binary[N] → string[N].

    Nulls:  where ``null`` (bool[N], or None for none) is true.

    Raises: NotUtf8Error with the relation, the column and the first bad row's LSN, from ``lsn[N]``.
    """
    if len(values) == 0:
        return pa.array([], type=pa.string())
    _, offsets, content = values.buffers()
    if not _is_ascii(content) and not _is_utf8(values):
        place = None if lsn is None else int(lsn[_first_not_utf8(values)])
        raise NotUtf8Error(relation, column, place)
    validity = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), len(values), [validity, offsets, content])


def null_text(count: int) -> pa.Array:
    """``count`` nulls of type string."""
    return pa.nulls(count, pa.string())


def concat(parts: list[pa.Array]) -> pa.Array:
    """Concatenate at least one array."""
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _is_ascii(content: pa.Buffer | None) -> bool:
    """Whether no byte has its high bit set: such text is valid UTF-8 without a further check."""
    if content is None or content.size == 0:
        return True
    return int(np.frombuffer(content, dtype=np.uint8).max()) < 0x80


def _is_utf8(values: pa.Array) -> bool:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _first_not_utf8(values: pa.Array) -> int:
    """Return the index of the first bad value, by bisection."""
    first, count = 0, len(values)
    while count > 1:
        half = count // 2
        if _is_utf8(values.slice(first, half)):
            first, count = first + half, count - half
        else:
            count = half
    return first


@lru_cache(maxsize=64)
def _even_indices(count: int) -> pa.Array:
    return pa.array(np.arange(0, 2 * count, 2, dtype=np.int32))
