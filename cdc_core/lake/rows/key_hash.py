"""64-bit hashes of rows' values, to divide rows into parts: values that ``codes`` numbers alike have one hash.

Different values may have one hash too; that only puts more rows into a part. Of long texts the ends are hashed. Files
of ``lake/index`` contain hashes: a change of the function changes their version.

``row_digests`` are for the comparison of rows (``cdc_core.reconcile``): every byte of a value is in its digest, and 0
and -0 differ. They are never stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.lake.rows.images import validity

Hashes = np.ndarray

_END_BYTES = 128
_AT_ONCE = 65_536
_ALL = np.uint64(2**64 - 1)
_NULL = np.uint64(0x9E3779B97F4A7C15)
_STEP = np.uint64(0x9E3779B97F4A7C15)


def row_hashes(columns: Sequence[pa.Array]) -> Hashes:
    """Hash rows of at least one column. Shape: array[N] each -> uint64[N]."""
    hashes = np.zeros(len(columns[0]), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for number, values in enumerate(columns):
            hashes = mixed(hashes + _hashes(values) + np.uint64(number) * _STEP)
    return hashes


def row_digests(columns: Sequence[pa.Array]) -> Hashes:
    """Return a 64-bit digest of each row of at least one column; equal rows have equal ones. Shape: as ``row_hashes``.

    Two rows that differ have the same digest with a probability of 2^-64. Raises ArrowNotImplementedError for a type
    whose values have no text.
    """
    digests = np.zeros(len(columns[0]), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for number, values in enumerate(columns):
            digests = mixed(digests + _hashes(values, exact=True) + np.uint64(number) * _STEP)
    return digests


def mixed(values: Hashes) -> Hashes:
    """Spread the bits of each number (the finalizer of splitmix64). Shape: uint64[N] -> uint64[N]."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(values ^ (values >> np.uint64(31)))


def _hashes(values: pa.Array, exact: bool = False) -> Hashes:
    kind = values.type
    if pa.types.is_map(kind):
        entries = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        return _of_lists(values.cast(pa.list_(entries)), False, exact)
    if pa.types.is_struct(kind):
        parts = [values.is_valid(), *values.flatten()]
        return _with_nulls(row_digests(parts) if exact else row_hashes(parts), values)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _of_lists(values, True, exact)
    if pa.types.is_fixed_size_list(kind):
        return _of_lists(values.cast(pa.list_(kind.value_type)), True, exact)
    return _with_nulls(_of_leaves(values, exact), values)


def _with_nulls(hashes: Hashes, values: pa.Array) -> Hashes:
    return hashes if not values.null_count else np.where(validity(values), hashes, _NULL)


def _of_lists(values: pa.Array, ordered: bool, exact: bool) -> Hashes:
    """Hash lists; without ``ordered`` the order of elements is not part of the hash."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False), dtype=np.int64)
    elements = _hashes(values.flatten(), exact)
    starts = np.cumsum(lengths) - lengths
    with np.errstate(over="ignore"):
        if ordered:
            place = np.arange(len(elements), dtype=np.int64) - np.repeat(starts, lengths)
            elements = elements + place.astype(np.uint64) * _STEP
        return _with_nulls(mixed(_sums(mixed(elements), lengths) + lengths.astype(np.uint64)), values)


def _of_leaves(values: pa.Array, exact: bool) -> Hashes:  # noqa: PLR0911 - one per kind of type
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _hashes(values.dictionary_decode(), exact)
    if pa.types.is_floating(kind):
        wide = np.array(values.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False))
        if not exact:
            wide += 0.0  # -0 becomes 0
        wide[np.isnan(wide)] = np.nan
        return mixed(wide.view(np.uint64))
    if exact and (pa.types.is_temporal(kind) or pa.types.is_decimal128(kind)) and not pa.types.is_interval(kind):
        return _of_words(values)
    if pa.types.is_integer(kind):
        whole = values.fill_null(0).to_numpy(zero_copy_only=False)
        return mixed(whole.astype(np.int64, copy=False).view(np.uint64))
    if pa.types.is_boolean(kind):
        return mixed(values.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint64))
    if pa.types.is_null(kind):
        return np.full(len(values), _NULL, dtype=np.uint64)
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        try:
            values = values.cast(pa.large_string())  # an Arrow type prints equal values alike
        except pa.ArrowNotImplementedError:
            if exact:
                raise
            return np.full(len(values), _NULL, dtype=np.uint64)
    return _of_bytes(values.cast(pa.large_binary()), exact)


def _of_words(values: pa.Array) -> Hashes:
    """Hash values of a fixed width of 4, 8 or 16 bytes, as they are stored. Shape: array[N] -> uint64[N]."""
    width = values.type.bit_width // 8
    if not len(values):
        return np.zeros(0, dtype=np.uint64)
    stored = np.frombuffer(values.buffers()[1], dtype=f"<u{min(width, 8)}")
    words = stored[values.offset * max(1, width // 8) : (values.offset + len(values)) * max(1, width // 8)]
    if width <= 8:
        return mixed(words.astype(np.uint64))
    with np.errstate(over="ignore"):
        return mixed(mixed(words[0::2].astype(np.uint64)) + words[1::2] + _STEP)


def _of_bytes(values: pa.Array, exact: bool) -> Hashes:
    """Hash the length and both ends of each value, with ``exact`` all of it. Shape: large_binary[N] -> uint64[N]."""
    bounds = np.frombuffer(values.buffers()[1], dtype=np.int64)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(values.buffers()[2] or b"", dtype=np.uint8)
    return np.concatenate(
        [np.zeros(0, dtype=np.uint64)]
        + [_of_texts(bounds[at : at + _AT_ONCE + 1], data, exact) for at in range(0, len(values), _AT_ONCE)]
    )


def _of_texts(bounds: np.ndarray, data: np.ndarray, exact: bool) -> Hashes:
    """Shape: int64[N + 1] ascending, uint8[B] -> uint64[N]"""
    # Eight bytes from any place on are read as one number; the last ones need something behind them.
    near = np.concatenate((data[bounds[0] : bounds[-1]], np.zeros(8, dtype=np.uint8)))
    words = np.ndarray(shape=(len(near) - 7,), dtype="<u8", buffer=near, strides=(1,))
    starts, lengths = bounds[:-1] - bounds[0], np.diff(bounds)
    hashes = _absorbed(mixed(lengths.astype(np.uint64)), words, starts, np.minimum(lengths, _END_BYTES))
    long = np.flatnonzero(lengths > _END_BYTES)
    if exact and len(long):
        # row-wise: values of more than 128 bytes, whose hashing takes longer than the step to the next one
        whole = (near[starts[at] : starts[at] + lengths[at]] for at in long)
        digests = b"".join(hashlib.blake2b(value.tobytes(), digest_size=8).digest() for value in whole)
        hashes[long] = np.frombuffer(digests, dtype="<u8")
    elif len(long):
        ends = starts[long] + lengths[long] - _END_BYTES
        hashes[long] = _absorbed(hashes[long], words, ends, np.full(len(long), _END_BYTES))
    return hashes


def _absorbed(hashes: Hashes, words: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> Hashes:
    """Mix ``lengths`` bytes from each start on into the hashes. Shape: uint64[N], uint64[W], int64[N], int64[N]."""
    with np.errstate(over="ignore"):
        for at in range(0, int(lengths.max(initial=0)), 8):
            rows = slice(None) if at == 0 and lengths.all() else np.flatnonzero(lengths > at)
            left = np.minimum(lengths[rows] - at, 8)
            taken = words[starts[rows] + at] & (_ALL >> ((8 - left).astype(np.uint64) * np.uint64(8)))
            hashes[rows] = mixed(hashes[rows] + taken + np.uint64(at + 1) * _STEP)
    return hashes


def _sums(values: Hashes, lengths: np.ndarray) -> Hashes:
    """Add up consecutive values, ``lengths`` of them each. Shape: uint64[sum of lengths], int64[N] -> uint64[N]."""
    with np.errstate(over="ignore"):
        total = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum(values, dtype=np.uint64)))
        ends = np.cumsum(lengths)
        return np.asarray(total[ends] - total[ends - lengths])
