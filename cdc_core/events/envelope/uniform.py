"""Whether all values of a column are the same: such a column is written once for a batch, not once a row.

Most fields of an event are: the source's names, the operation, the headers, the times of a transaction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

_OFFSETS: dict[pa.DataType, np.dtype[Any]] = {
    pa.string(): np.dtype(np.int32),
    pa.binary(): np.dtype(np.int32),
    pa.large_string(): np.dtype(np.int64),
    pa.large_binary(): np.dtype(np.int64),
}


def is_uniform(array: pa.Array) -> bool:
    """Return whether there are at least two values and all are equal, bit for bit, or all are null.

    False for nested types, whose fields are tested one by one. A column whose values differ is mostly recognized by its
    first and last ones.
    """
    rows = len(array)
    if rows < 2:
        return False
    if array.null_count:
        return bool(array.null_count == rows)
    kind = array.type
    if pa.types.is_boolean(kind):
        return array.true_count in (0, rows)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        # As integers: -0.0 is not 0.0, and NaN is NaN.
        bits = array.to_numpy(zero_copy_only=False).view(f"u{kind.bit_width // 8}")
        return bool(bits[0] == bits[-1] and (bits == bits[0]).all())
    offset = _OFFSETS.get(kind)
    return offset is not None and _is_repeated(array, offset)


def _is_repeated(array: pa.Array, offset: np.dtype[Any]) -> bool:
    """Whether the bytes of the first value are those of every other one."""
    _, ends, content = array.buffers()
    offsets = np.frombuffer(ends, dtype=offset)[array.offset : array.offset + len(array) + 1]
    first, size = int(offsets[0]), int(offsets[1] - offsets[0])
    if int(offsets[-1]) - first != size * len(array):
        return False
    if not size:
        return bool((offsets == first).all())
    octets = np.frombuffer(content, dtype=np.uint8)[first : first + size * len(array)].reshape(-1, size)
    if (octets[0] != octets[-1]).any() or (np.diff(offsets) != size).any():
        return False
    return bool((octets == octets[0]).all())
