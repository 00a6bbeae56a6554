"""Vector primitives over fixed-width byte matrices: one row per value, one column per character.

Short texts (times, timestamps) are read and written as such matrices: a few numpy operations per column, no Python per
row.
"""

from __future__ import annotations

import binascii
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_core.arrays import Bools, Bytes, Ints
from cdc_core.types._flat import flatten, gather

ZERO = ord("0")
_NO_DIGIT = 255
_NIBBLE = np.full(256, _NO_DIGIT, dtype=np.uint8)
for _place, _character in enumerate(b"0123456789abcdef"):
    _NIBBLE[_character] = _place
for _place, _character in enumerate(b"ABCDEF"):
    _NIBBLE[_character] = 10 + _place


def validity(text: pa.Array) -> Bools | None:
    """Return which rows are not null; None if all are."""
    if text.null_count == 0:
        return None
    mask: Bools = text.is_valid().to_numpy(zero_copy_only=False)
    return mask


def with_nulls(values: npt.NDArray[Any], valid: Bools | None, arrow_type: pa.DataType) -> pa.Array:
    """Convert a numpy array to Arrow, null where not ``valid``."""
    return pa.array(values, arrow_type, mask=None if valid is None else ~valid)


def string_rows(matrix: Bytes, lengths: Ints, valid: Bools | None) -> pa.StringArray:
    """Return the first ``lengths`` characters of each row as strings."""
    return _rows(matrix, np.arange(matrix.shape[1]) < lengths[:, None], lengths, valid, pa.string())


def binary_rows_right(matrix: Bytes, lengths: Ints, valid: Bools | None) -> pa.BinaryArray:
    """Return the last ``lengths`` bytes of each row."""
    width = matrix.shape[1]
    return _rows(matrix, np.arange(width) >= (width - lengths)[:, None], lengths, valid, pa.binary())


def binary_rows_left(matrix: Bytes, lengths: Ints, valid: Bools | None) -> pa.BinaryArray:
    """Return the first ``lengths`` bytes of each row."""
    return _rows(matrix, np.arange(matrix.shape[1]) < lengths[:, None], lengths, valid, pa.binary())


def _rows(matrix: Bytes, keep: Bools, lengths: Ints, valid: Bools | None, arrow_type: pa.DataType) -> pa.Array:
    if valid is not None:
        keep &= valid[:, None]
        lengths = np.where(valid, lengths, 0)
    return from_flat(matrix[keep], lengths, valid, arrow_type)


def from_flat(data: Bytes, lengths: Ints, valid: Bools | None, arrow_type: pa.DataType) -> pa.Array:
    """Return a string or binary array of these bytes, divided into rows of these lengths."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(arrow_type, len(lengths), buffers)


def put_digits(matrix: Bytes, column: int, values: Ints, count: int) -> None:
    """Write ``count`` decimal digits of each value from ``column`` on, with leading zeros."""
    rest = values
    for place in range(column + count - 1, column - 1, -1):
        high = rest // 10
        matrix[:, place] = rest - high * 10 + ZERO
        rest = high


def hex_bytes(text: pa.Array, skip: int) -> tuple[pa.BinaryArray, Bools]:
    """Decode each row's hexadecimal digits after ``skip`` characters; also returns which rows are invalid.

    Shape:   text[N] -> binary[N], bool[N]

    Nulls:   stay null
    """
    data, starts, ends, valid = flatten(text)
    wrong = valid & ((ends - starts < skip) | ((ends - starts - skip) % 2 != 0))
    starts = np.minimum(starts + skip, ends)
    ends = np.where(wrong, starts, ends)
    digits, starts, ends = gather(data, starts, ends)
    nibbles = _NIBBLE[digits]
    if len(nibbles) and nibbles.max() == _NO_DIGIT:
        # Rows with an even number of digits are adjacent, so an invalid digit belongs to the row that contains its
        # index.
        rows = np.searchsorted(ends, np.flatnonzero(nibbles == _NO_DIGIT), side="right")
        wrong[rows] = True
    octets: Bytes = ((nibbles[0::2] << 4) | nibbles[1::2]).astype(np.uint8)
    return from_flat(octets, (ends - starts) // 2, valid, pa.binary()), wrong


def base64_text(octets: pa.Array, url_safe: bool) -> pa.StringArray:
    """Return base64 with padding of each row, in the standard or the URL-safe alphabet.

    Every row is padded to complete groups of three bytes, so a single call encodes the entire array; the characters of
    the padding are then overwritten by ``=``.
    """
    data, starts, ends, valid = flatten(octets)
    lengths = ends - starts
    data, starts, ends = gather(data, starts, ends)
    groups = (lengths + 2) // 3
    tops = np.cumsum(groups)
    filled = np.zeros(int(tops[-1]) * 3 if len(tops) else 0, dtype=np.uint8)
    filled[np.arange(len(data)) + np.repeat((tops - groups) * 3 - starts, lengths)] = data
    encoded = np.frombuffer(bytearray(binascii.b2a_base64(filled.tobytes(), newline=False)), dtype=np.uint8)
    if url_safe:
        encoded = np.where(encoded == ord("+"), ord("-"), np.where(encoded == ord("/"), ord("_"), encoded))
        encoded = encoded.astype(np.uint8)
    spare = groups * 3 - lengths
    encoded[(tops * 4 - 1)[spare >= 1]] = ord("=")
    encoded[(tops * 4 - 2)[spare == 2]] = ord("=")
    return from_flat(encoded, groups * 4, valid if octets.null_count else None, pa.string())


def unscaled_bytes(numbers: pa.Array) -> pa.BinaryArray:
    """Return the unscaled integers of a decimal128 array as Java's BigInteger: big-endian, as short as possible.

    Shape:   decimal128[N] -> binary[N], at least one byte

    Nulls:   stay null
    """
    count = len(numbers)
    raw = np.frombuffer(numbers.buffers()[1], dtype=np.uint8) if count else np.zeros(0, np.uint8)
    little = raw[numbers.offset * 16 : (numbers.offset + count) * 16].reshape(count, 16)
    big = np.ascontiguousarray(little[:, ::-1])
    sign = np.where(big[:, 0] >= 0x80, 0xFF, 0).astype(np.uint8)
    # A byte is dropped if it only repeats the sign and the next one still has it.
    spare = (big[:, :-1] == sign[:, None]) & ((big[:, 1:] ^ sign[:, None]) < 0x80)
    dropped = np.argmin(np.concatenate([spare, np.zeros((count, 1), bool)], axis=1), axis=1)
    return binary_rows_right(big, 16 - dropped.astype(np.int64), validity(numbers))


_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


def hex_text(octets: pa.Array) -> pa.StringArray:
    """Return lower-case hexadecimal digits of each row."""
    data, starts, ends, valid = flatten(octets)
    data, starts, ends = gather(data, starts, ends)
    digits = np.empty((len(data), 2), dtype=np.uint8)
    digits[:, 0] = _HEX_DIGITS[data >> 4]
    digits[:, 1] = _HEX_DIGITS[data & 0x0F]
    return from_flat(digits.reshape(-1), (ends - starts) * 2, valid if octets.null_count else None, pa.string())
