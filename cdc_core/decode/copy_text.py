"""Decodes COPY … TO STDOUT in text format to the RawColumns that the stream uses, too: for snapshots."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from cdc_core.decode.gather import as_text, concat, gather_binary
from cdc_core.decode.raw_columns import RawColumns
from cdc_core.errors import ProtocolError

# Bytes decoded at once: they remain in the CPU cache while every column is gathered from them.
CHUNK_BYTES = 1 << 20
# Lines with a large value: a mask or copy of its bytes is made only if it cannot be avoided.
_LARGE_BYTES = 8 << 20
_FEW = 10_000

_TAB, _NEWLINE, _BACKSLASH, _NULL_LETTER = 0x09, 0x0A, 0x5C, ord("N")
# The byte represented by each byte after a backslash; bytes not listed represent themselves.
_ESCAPED = np.arange(256, dtype=np.uint8)
for _letter, _byte in zip(b"bfnrtv", b"\b\f\n\r\t\v", strict=True):
    _ESCAPED[_letter] = _byte
_IS_OCTAL = np.zeros(256, dtype=bool)
_IS_OCTAL[list(b"01234567")] = True
_BOM = "\ufeff".encode()
_HEX = frozenset(b"0123456789abcdefABCDEF")


def decode_copy(data: bytes | bytearray | memoryview, names: tuple[str, ...], relation: str = "") -> RawColumns:
    """Decode complete lines of COPY's text format, with its default delimiter and null string, to text columns.

    Shape:  lines[N] of len(names) fields → RawColumns of N rows. Without columns a line is empty.

    Nulls:  an unescaped ``\\N`` is null; an empty field is the empty string. ``unchanged`` is None for all columns.

    Raises: ProtocolError(relation, None, expected, found) for a line with another number of fields, data that do not
    end with a line end, a backslash at the end of a field. NotUtf8Error for bytes that are not UTF-8.

    Source: PostgreSQL manual, COPY, "Text Format".
    """
    whole = np.frombuffer(data, dtype=np.uint8)
    if len(whole) and whole[-1] != _NEWLINE:
        raise ProtocolError(relation, None, "COPY data that end with a complete line", "a part of one")
    parts: list[list[pa.Array]] = [[] for _ in names]
    first = 0
    while first < len(whole):
        last = _line_end(whole, first + CHUNK_BYTES)
        lines = whole[first:last]
        columns = _plain_lines(lines, names) or _decode_lines(lines, names, relation)
        for column, part in zip(parts, columns, strict=True):
            column.append(part)
        first = last
    text = tuple(concat(column) if column else pa.array([], type=pa.string()) for column in parts)
    return RawColumns(names, text, (None,) * len(names), int(np.count_nonzero(whole == _NEWLINE)) if not names else 0)


class LineCutter:
    """Splits a stream of blocks at line ends. A field never contains a line end, which COPY writes as ``\\n``."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, block: bytes | bytearray | memoryview) -> bytes:
        """Return the lines complete with this block, empty if there are none; the rest is kept for the next block."""
        block = bytes(block)
        cut = block.rfind(b"\n") + 1
        if cut == 0:
            self._rest.append(block)
            return b""
        lines = b"".join([*self._rest, block[:cut]])
        self._rest = [block[cut:]] if cut < len(block) else []
        return lines

    def finish(self, relation: str = "") -> None:
        """Check that the stream ended with a complete line; raises ProtocolError otherwise."""
        left = sum(len(part) for part in self._rest)
        if left:
            raise ProtocolError(relation, None, "COPY data that end with a complete line", f"{left} bytes of another")


def _line_end(whole: np.ndarray, at: int) -> int:
    """Return the offset after the first line end at or after ``at``, searching in growing steps."""
    step = 4096
    while at < len(whole):
        found = np.flatnonzero(whole[at : at + step] == _NEWLINE)
        if len(found):
            return at + int(found[0]) + 1
        at += step
        step *= 2
    return len(whole)


def _plain_lines(data: np.ndarray, names: tuple[str, ...]) -> list[pa.Array] | None:
    """Decode lines without backslashes other than those of nulls with Arrow's CSV reader: twice as fast.

    None if there is another backslash, or the lines are invalid: ``_decode_lines`` reports the error. Also for large
    values, of which the reader would make two more copies.
    """
    if len(data) > _LARGE_BYTES:
        return None
    text = data.tobytes()
    # The reader would remove a byte order mark at the start, and end a line at a carriage return (never sent).
    if not names or text.startswith((_BOM, b"\n")) or b"\r" in text:
        return None
    # Two columns may have the same name.
    numbers = [str(number) for number in range(len(names))]
    try:
        rows = csv.read_csv(
            pa.BufferReader(text),
            read_options=csv.ReadOptions(use_threads=False, column_names=numbers, block_size=len(text) + 1),
            parse_options=csv.ParseOptions(
                delimiter="\t", quote_char=False, double_quote=False, escape_char=False, ignore_empty_lines=False
            ),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(numbers, pa.string()), null_values=["\\N"], strings_can_be_null=True
            ),
        )
    except pa.ArrowInvalid:
        return None
    if text.count(b"\\") != sum(column.null_count for column in rows.columns):
        return None
    # The reader treats an empty line as one of empty fields. Searching for one is slow, so this is done only if a first
    # field is empty.
    if pc.min(pc.binary_length(rows.column(0))).as_py() == 0 and b"\n\n" in text:
        return None
    return [concat(column.chunks) for column in rows.columns]


def _decode_lines(data: np.ndarray, names: tuple[str, ...], relation: str) -> list[pa.Array]:
    ends = _field_ends(data, len(names), relation)
    starts = np.empty_like(ends)
    starts[:1] = 0
    starts[1:] = ends[:-1] + 1
    slashes = np.flatnonzero(data == _BACKSLASH)
    null = None
    if len(slashes):
        null = (
            (data[starts] == _BACKSLASH) & (ends - starts == 2) & (data[np.minimum(starts + 1, ends)] == _NULL_LETTER)
        )
        if np.count_nonzero(null) == len(slashes):
            ends = np.where(null, starts, ends)
        else:
            data, starts, ends = _unescape(data, slashes, starts, ends, relation)
    width = len(names)
    columns = []
    for index, name in enumerate(names):
        mask = None if null is None else null[index::width]
        if mask is not None and not mask.any():
            mask = None
        values = gather_binary(data, starts[index::width], ends[index::width])
        columns.append(as_text(values, mask, relation, name))
    return columns


def _field_ends(data: np.ndarray, width: int, relation: str) -> np.ndarray:
    """Return the end of each field, row by row; every line must have ``width`` fields."""
    if len(data) > _LARGE_BYTES:
        ends = np.sort(np.concatenate([np.flatnonzero(data == _TAB), np.flatnonzero(data == _NEWLINE)]))
    else:
        ends = np.flatnonzero((data == _TAB) | (data == _NEWLINE))
    if width == 0:
        if len(ends) != len(data) or (data != _NEWLINE).any():
            raise ProtocolError(relation, None, "empty lines of a table without columns", "others")
        return ends[:0]
    line_ends = np.flatnonzero(data[ends] == _NEWLINE)
    fields = np.diff(line_ends, prepend=-1)
    if not (fields == width).all():
        count = int(fields[np.argmin(fields == width)])
        raise ProtocolError(relation, None, f"{width} fields in every line of COPY", f"{count}")
    return ends


def _unescape(
    data: np.ndarray, slashes: np.ndarray, starts: np.ndarray, ends: np.ndarray, relation: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Remove the escaping backslashes, replace the bytes after them, and adjust the field bounds.

    In a run of backslashes every other one escapes the byte after it, starting with the first. A null's ``\\N`` becomes
    an N, which the null mask hides.
    """
    new_run = np.ones(len(slashes), dtype=bool)
    new_run[1:] = np.diff(slashes) != 1
    run_start = np.maximum.accumulate(np.where(new_run, np.arange(len(slashes)), 0))
    escaping = slashes[(np.arange(len(slashes)) - run_start) % 2 == 0]
    followers = data[escaping + 1]  # exists, because the data end with a newline
    if ((followers == _TAB) | (followers == _NEWLINE)).any():
        raise ProtocolError(relation, None, "a character behind every backslash of COPY", "the field's end")
    numeric = escaping[_IS_OCTAL[followers] | (followers == ord("x"))]
    if len(data) > _LARGE_BYTES and len(escaping) < _FEW and not len(numeric):
        pieces = [data[low + 1 : high] for low, high in itertools.pairwise([-1, *escaping.tolist(), len(data)])]
        joined = np.concatenate(pieces)
        joined[escaping - np.arange(len(escaping))] = _ESCAPED[followers]
        return joined, starts - np.searchsorted(escaping, starts), ends - np.searchsorted(escaping, ends)
    out = data.copy()
    out[escaping + 1] = _ESCAPED[followers]
    keep = np.ones(len(data), dtype=bool)
    keep[escaping] = False
    for at in numeric:  # row-wise: numeric escapes are legal, but no server writes them
        _numeric_escape(data, int(at), out, keep)
    # Few bytes are removed, even of large values, so their places take less memory than a sum for every byte.
    removed = np.flatnonzero(~keep)
    before = np.searchsorted(removed, starts, side="left")
    return out[keep], starts - before, ends - np.searchsorted(removed, ends, side="left")


def _numeric_escape(data: np.ndarray, at: int, out: np.ndarray, keep: np.ndarray) -> None:
    """Decode up to three octal digits, or x and up to two hexadecimal ones, after the backslash at ``at``."""
    behind = bytes(data[at + 1 : at + 4])
    if behind[:1] == b"x":
        digits = _leading(behind[1:3], _HEX)
        used, base = len(digits) + 1, 16
        if not digits:
            return
    else:
        digits = _leading(behind, frozenset(b"01234567"))
        used, base = len(digits), 8
    out[at + 1] = int(digits, base) & 0xFF
    keep[at + 2 : at + 1 + used] = False


def _leading(text: bytes, allowed: frozenset[int]) -> bytes:
    count = next((index for index, byte in enumerate(text) if byte not in allowed), len(text))
    return text[:count]
