"""The iteration order of a Java HashMap: used by Debezium for JSON text and maps of an hstore.

A key is in bucket ``(h ^ h >>> 16) & (capacity - 1)`` with h of ``String.hashCode``; buckets are iterated in order,
keys of one bucket in insertion order, which a resize preserves. (A bucket of nine keys becomes a tree; its order may
then differ. No real hstore has one.) Source: the documented hashCode of String and Short, and java.util.HashMap's
constants.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_core.arrays import Bytes, Ints
from cdc_core.types._flat import flatten

_LOAD = 0.75


def string_hashes(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """Return ``String.hashCode`` of every key, as unsigned 32 bit. Keys have no nulls."""
    data, starts, ends, _ = flatten(keys)
    if not len(starts):
        return np.empty(0, np.uint32)
    data, starts, ends = data[starts[0] : ends[-1]], starts - starts[0], ends - starts[0]
    units, starts, ends = _utf16(data, starts, ends)
    hashes = np.zeros(len(starts), dtype=np.uint32)
    lengths = ends - starts
    order = np.argsort(-lengths, kind="stable")
    longest_first = lengths[order]
    for place in range(int(longest_first[0])):  # one step per character, for all keys of at least this length at once
        alive = order[: np.searchsorted(-longest_first, -place, side="left")]
        hashes[alive] = hashes[alive] * np.uint32(31) + units[starts[alive] + place]
    return hashes


def capacities(sizes: Ints, initial: Ints | int = 16) -> Ints:
    """Return the final number of buckets of a map of each size, doubled whenever three quarters are exceeded."""
    buckets = np.broadcast_to(np.asarray(initial, dtype=np.int64), sizes.shape).copy()
    while True:
        small = sizes > buckets * _LOAD
        if not small.any():
            return buckets
        buckets[small] *= 2


def iteration_order(hashes: npt.NDArray[np.uint32], row_of: Ints, buckets: Ints) -> Ints:
    """Return indices that sort the keys of every row in iteration order; rows stay in order.

    ``buckets`` contains the number of buckets of each key's map.
    """
    spread = (hashes ^ (hashes >> np.uint32(16))).astype(np.int64)
    order: Ints = np.lexsort((spread & (buckets - 1), row_of))
    return order


def _utf16(data: Bytes, starts: Ints, ends: Ints) -> tuple[npt.NDArray[np.uint32], Ints, Ints]:
    """Return Java's characters of UTF-8 bytes, and the bounds in them. One unit per code point, two past U+FFFF."""
    if not len(data) or int(data.max()) < 0x80:
        return data.astype(np.uint32), starts, ends
    units = np.frombuffer(data.tobytes().decode("utf-8").encode("utf-16-le"), dtype=np.uint16)
    width = ((data & 0xC0) != 0x80).astype(np.int64) + (data >= 0xF0)
    before = np.concatenate([[0], np.cumsum(width)])
    return units.astype(np.uint32), before[starts], before[ends]
