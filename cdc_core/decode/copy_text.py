"""COPY … TO STDOUT in text format → columns: the snapshot's path to the same RawColumns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from cdc_core.decode.gather import as_text, concat, gather_binary
from cdc_core.decode.raw_columns import RawColumns
from cdc_core.errors import ProtocolError

# Bytes decoded at once: they stay in the cache while every column is gathered from them.
CHUNK_BYTES = 1 << 20

_TAB, _NEWLINE, _BACKSLASH, _NULL_LETTER = 0x09, 0x0A, 0x5C, ord("N")
# What the byte behind a backslash stands for; every byte not named stands for itself.
_ESCAPED = np.arange(256, dtype=np.uint8)
for _letter, _byte in zip(b"bfnrtv", b"\b\f\n\r\t\v", strict=True):
    _ESCAPED[_letter] = _byte
_IS_OCTAL = np.zeros(256, dtype=bool)
_IS_OCTAL[list(b"01234567")] = True
_BOM = "\ufeff".encode()
_HEX = frozenset(b"0123456789abcdefABCDEF")


def decode_copy(data: bytes | bytearray | memoryview, names: tuple[str, ...], relation: str = "") -> RawColumns:
    """Whole lines of COPY's text format, with its default delimiter and null string, as text columns.

    Shape:  lines[N] of len(names) fields → RawColumns of N rows. Without columns there are no arrays to hold N.
    Nulls:  an unescaped ``\\N`` is null; an empty field is the empty string. ``unchanged`` is None everywhere.
    Raises: ProtocolError(relation, None, expected, found) for a line with another number of fields, data that do not
            end with a line's end, a backslash at the end of a field, bytes that are not UTF-8.
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
    return RawColumns(names, text, (None,) * len(names))


class LineCutter:
    """Cuts a stream of blocks at line ends. A line's end never stands inside a field, where COPY writes ``\\n``."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, block: bytes | bytearray | memoryview) -> bytes:
        """The whole lines complete with this block, empty where there are none; the rest is kept for the next."""
        block = bytes(block)
        cut = block.rfind(b"\n") + 1
        if cut == 0:
            self._rest.append(block)
            return b""
        lines = b"".join([*self._rest, block[:cut]])
        self._rest = [block[cut:]] if cut < len(block) else []
        return lines

    def finish(self, relation: str = "") -> None:
        """Check that the stream ended with a whole line; raises ProtocolError where it did not."""
        left = sum(len(part) for part in self._rest)
        if left:
            raise ProtocolError(relation, None, "COPY data that end with a complete line", f"{left} bytes of another")


def _line_end(whole: np.ndarray, at: int) -> int:
    """The offset behind the first line end at or behind ``at``, looking further in growing steps."""
    step = 4096
    while at < len(whole):
        found = np.flatnonzero(whole[at : at + step] == _NEWLINE)
        if len(found):
            return at + int(found[0]) + 1
        at += step
        step *= 2
    return len(whole)


def _plain_lines(data: np.ndarray, names: tuple[str, ...]) -> list[pa.Array] | None:
    """The columns of lines in which no backslash stands but a null's, read by Arrow's CSV reader: twice as fast.

    None where there is another backslash, and where something is wrong with the lines: ``_decode_lines`` tells what.
    """
    text = data.tobytes()
    # The reader takes a byte order mark at the start for its own.
    if not names or text.startswith((_BOM, b"\n")):
        return None
    # Two columns may bear one name.
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
    # It takes an empty line for one of empty fields. Looking for one is slow, and it shows as an empty first field.
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
        columns.append(as_text(values, mask, f"{relation} (column {name})".lstrip()))
    return columns


def _field_ends(data: np.ndarray, width: int, relation: str) -> np.ndarray:
    """Where each field ends, row by row; every line must have ``width`` fields."""
    ends = np.flatnonzero((data == _TAB) | (data == _NEWLINE))
    if width == 0:
        if len(ends) != len(data) or (data != _NEWLINE).any():
            raise ProtocolError(relation, None, "empty lines of a table without columns", "others")
        return ends[:0]
    line_ends = np.flatnonzero(data[ends] == _NEWLINE)
    fields = np.diff(line_ends, prepend=-1)
    if not (fields == width).all():
        found = int(fields[np.argmin(fields == width)])
        raise ProtocolError(relation, None, f"{width} fields in every line of COPY", f"{found}")
    return ends


def _unescape(
    data: np.ndarray, slashes: np.ndarray, starts: np.ndarray, ends: np.ndarray, relation: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Drop the escaping backslashes and put in what they stand for; field bounds move along.

    In a run of backslashes every other one escapes its follower, starting with the first. A null's ``\\N`` becomes an N
    that the null mask covers.
    """
    new_run = np.ones(len(slashes), dtype=bool)
    new_run[1:] = np.diff(slashes) != 1
    run_start = np.maximum.accumulate(np.where(new_run, np.arange(len(slashes)), 0))
    escaping = slashes[(np.arange(len(slashes)) - run_start) % 2 == 0]
    followers = data[escaping + 1]  # there is one: the data end with a newline
    if ((followers == _TAB) | (followers == _NEWLINE)).any():
        raise ProtocolError(relation, None, "a character behind every backslash of COPY", "the field's end")
    out = data.copy()
    out[escaping + 1] = _ESCAPED[followers]
    keep = np.ones(len(data), dtype=bool)
    keep[escaping] = False
    numeric = escaping[_IS_OCTAL[followers] | (followers == ord("x"))]
    for at in numeric:  # row-wise: numeric escapes are legal, but no server writes them
        _numeric_escape(data, int(at), out, keep)
    removed = np.cumsum(~keep)
    return out[keep], starts - removed[starts] + ~keep[starts], ends - removed[ends]


def _numeric_escape(data: np.ndarray, at: int, out: np.ndarray, keep: np.ndarray) -> None:
    """Up to three octal digits, or x and up to two hexadecimal ones, behind the backslash at ``at``: one byte."""
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
