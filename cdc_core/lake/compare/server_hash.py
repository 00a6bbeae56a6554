"""The hash functions of PostgreSQL that hash partitioning uses (``hashint4extended`` and others), for Arrow values.

They are the same in every server version from 11 on, because rows are stored by them. Their core, Bob Jenkins' lookup3,
takes 12 bytes a step; here a step is made for all values at once. Verified against a server by
``tests/postgres/test_row_hashes.py``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

Hashes = np.ndarray
_State = tuple[np.ndarray, np.ndarray, np.ndarray]

_INITIAL = 0x9E3779B9 + 3923095
_LOW = 0xFFFFFFFF
_BLOCK = 12
# So many values at once that the state stays in the processor's cache.
_AT_ONCE = 16_384
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(5)], dtype=np.uint64).astype(np.uint32)
_WIDE_MASKS = np.array([(1 << 8 * count) - 1 for count in range(8)] + [2**64 - 1], dtype=np.uint64)


def hash_uint32(values: np.ndarray, seed: int) -> Hashes:
    """``hash_uint32_extended``. Shape: uint32[N] -> uint64[N]"""
    hashes = np.empty(len(values), dtype=np.uint64)
    for at in range(0, len(values), _AT_ONCE):
        part = values[at : at + _AT_ONCE]
        a, b, c = _begun_alike(len(part), 4, seed)
        a += part
        hashes[at : at + _AT_ONCE] = _finished(a, b, c)
    return hashes


def hash_int64(values: np.ndarray, seed: int) -> Hashes:
    """``hashint8extended``, which hashes 32 bits made of both halves. Shape: int64[N] -> uint64[N]"""
    low = values.astype(np.uint32)
    high = high_half(values).view(np.uint32)
    return hash_uint32(low ^ np.where(values >= 0, high, ~high), seed)


def high_half(values: np.ndarray) -> np.ndarray:
    """Return ``(value >> 32)::int4``. Shape: int64[N] -> int32[N]"""
    return np.asarray((values >> np.int64(32)).astype(np.int32))


def hash_float64(values: np.ndarray, seed: int) -> Hashes:
    """``hashfloat8extended``: the seed itself for 0 and -0, one hash for every NaN. Shape: float64[N] -> uint64[N]"""
    values = np.where(np.isnan(values), np.nan, values)
    words = np.ascontiguousarray(values).view(np.uint32).reshape(-1, 2)
    hashes = np.empty(len(values), dtype=np.uint64)
    for at in range(0, len(values), _AT_ONCE):
        part = words[at : at + _AT_ONCE]
        a, b, c = _begun_alike(len(part), 8, seed)
        a += part[:, 0]
        b += part[:, 1]
        hashes[at : at + _AT_ONCE] = _finished(a, b, c)
    hashes[values == 0] = np.uint64(seed)
    return hashes


def hash_bytes(values: pa.Array, seed: int) -> Hashes:
    """``hash_bytes_extended``, which text and bytea use; of a null any number.

    Shape: string[N], binary[N], or one of their large layouts -> uint64[N]
    """
    values = values.cast(pa.large_binary())
    hashes = np.empty(len(values), dtype=np.uint64)
    if not len(values):
        return hashes
    bounds = np.frombuffer(values.buffers()[1], dtype=np.int64)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(values.buffers()[2] or b"", dtype=np.uint8)
    for at in range(0, len(values), _AT_ONCE):
        hashes[at : at + _AT_ONCE] = _of_bytes(bounds[at : at + _AT_ONCE + 1], data, seed)
    return hashes


def _of_bytes(bounds: np.ndarray, data: np.ndarray, seed: int) -> Hashes:
    """Shape: int64[N + 1] ascending, uint8[B] -> uint64[N]"""
    # The words of a value's last bytes reach behind it, those of the last value behind the data.
    near = np.concatenate((data[bounds[0] : bounds[-1]], np.zeros(_BLOCK, dtype=np.uint8)))
    narrow = np.ndarray(shape=(len(near) - 3,), dtype="<u4", buffer=near, strides=(1,))
    wide = np.ndarray(shape=(len(near) - 7,), dtype="<u8", buffer=near, strides=(1,))
    starts, lengths = bounds[:-1] - bounds[0], np.diff(bounds)
    state = _begun(lengths.astype(np.uint32), seed)
    blocks = lengths // _BLOCK
    for step in range(int(blocks.max(initial=0))):
        _absorb(state, wide, narrow, starts, np.flatnonzero(blocks > step), step * _BLOCK)
    at, left = starts + blocks * _BLOCK, lengths - blocks * _BLOCK
    a, b, c = state
    first = (wide[at] & _WIDE_MASKS[np.minimum(left, 8)]).view(np.uint32).reshape(-1, 2)
    a += first[:, 0]
    b += first[:, 1]
    # The lowest byte of c is that of the length.
    c += (narrow[at + 8] & _MASKS[np.maximum(left - 8, 0)]) << np.uint32(8)
    return _finished(a, b, c)


def _absorb(
    state: _State, wide: np.ndarray, narrow: np.ndarray, starts: np.ndarray, rows: np.ndarray, offset: int
) -> None:
    """Mix 12 bytes at ``offset`` of some values into their states."""
    is_all = len(rows) == len(starts)
    at = (starts if is_all else starts[rows]) + offset
    a, b, c = state if is_all else (word[rows] for word in state)
    first = wide[at].view(np.uint32).reshape(-1, 2)
    a += first[:, 0]
    b += first[:, 1]
    c += narrow[at + 8]
    _mix(a, b, c)
    if not is_all:
        for word, mixed in zip(state, (a, b, c), strict=True):
            word[rows] = mixed


def _begun(lengths: np.ndarray, seed: int) -> _State:
    """Return the states before the first byte. Shape: uint32[N] -> uint32[N] each"""
    a = lengths + np.uint32(_INITIAL & _LOW)
    b, c = a.copy(), a.copy()
    if seed:
        a += np.uint32(seed >> 32)
        b += np.uint32(seed & _LOW)
        _mix(a, b, c)
    return a, b, c


def _begun_alike(count: int, length: int, seed: int) -> _State:
    """Return the states of ``count`` values of one length."""
    a, b, c = (np.full(count, word[0]) for word in _begun(np.array([length], dtype=np.uint32), seed))
    return a, b, c


def _rotated(values: np.ndarray, bits: int) -> np.ndarray:
    return np.asarray((values << np.uint32(bits)) | (values >> np.uint32(32 - bits)))


def _mix(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    for x, y, z, bits in ((a, c, b, 4), (b, a, c, 6), (c, b, a, 8), (a, c, b, 16), (b, a, c, 19), (c, b, a, 4)):
        np.subtract(x, y, out=x)
        np.bitwise_xor(x, _rotated(y, bits), out=x)
        np.add(y, z, out=y)


def _finished(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Hashes:
    for x, y, bits in ((c, b, 14), (a, c, 11), (b, a, 25), (c, b, 16), (a, c, 4), (b, a, 14), (c, b, 24)):
        np.bitwise_xor(x, y, out=x)
        np.subtract(x, _rotated(y, bits), out=x)
    return np.asarray((b.astype(np.uint64) << np.uint64(32)) | c)
