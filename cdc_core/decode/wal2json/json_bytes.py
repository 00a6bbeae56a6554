"""JSON of many messages in one buffer: values are located and unescaped for many messages at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_core.decode.gather import gather_binary
from cdc_core.decode.wire import Wire

_QUOTE, _BACKSLASH, _U = ord('"'), ord("\\"), ord("u")
_DELIMITERS = np.zeros(256, dtype=bool)
_DELIMITERS[list(b",}]")] = True
_ESCAPED = np.arange(256, dtype=np.uint8)
for _letter, _byte in zip(b"bfnrt", b"\b\f\n\r\t", strict=True):
    _ESCAPED[_letter] = _byte
_HEX = np.zeros(256, dtype=np.uint8)
for _place, _digit in enumerate(b"0123456789abcdef"):
    _HEX[_digit] = _place
for _place, _digit in enumerate(b"ABCDEF"):
    _HEX[_digit] = 10 + _place

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class JsonValues:
    """Values of N messages: ``starts[N]``, ``ends[N]`` without quotes; ``first[N]`` is the value's first byte."""

    starts: np.ndarray
    ends: np.ndarray
    first: np.ndarray


class JsonBytes(Wire):
    """Vector reads of JSON without blanks, as the plug-in writes it."""

    __slots__ = ("_delimiters", "_quotes", "has_escapes")

    def __init__(self, data: np.ndarray) -> None:
        super().__init__(data)
        quotes = np.flatnonzero(data == _QUOTE)
        slashes = np.flatnonzero(data == _BACKSLASH)
        self.has_escapes = bool(len(slashes))
        if len(slashes):
            escaped = _escaping(slashes) + 1
            quotes = quotes[~np.isin(quotes, escaped, assume_unique=True)]
        # A value without an end is assumed to end with the data, where no message matches.
        self._quotes = np.append(quotes, len(data))
        self._delimiters: np.ndarray | None = None

    def values(self, at: np.ndarray) -> tuple[JsonValues, Any]:
        """Return the values at the positions, and the positions behind them."""
        first = self.u8(at)
        is_text = first == _QUOTE
        if is_text.all():
            ends = self._next(self._quotes, at + 1)
            return JsonValues(self.inside(at + 1), ends, first), self.inside(ends + 1)
        if self._delimiters is None:
            self._delimiters = np.append(np.flatnonzero(_DELIMITERS[self.data[: self.size]]), self.size)
        ends = self._next(self._delimiters, at)
        if is_text.any():
            of_text = np.flatnonzero(is_text)
            ends[of_text] = self._next(self._quotes, at[of_text] + 1)
        return JsonValues(self.inside(at + is_text), ends, first), self.inside(ends + is_text)

    def text(self, places: JsonValues, rows: np.ndarray | None) -> pa.Array:
        """Return values as PostgreSQL's text, binary[N], null for null; ``rows``: indices, None for all."""
        starts, ends, first = places.starts, places.ends, places.first
        if rows is not None:
            starts, ends, first = starts[rows], ends[rows], first[rows]
        is_text = first == _QUOTE
        if not is_text.all():
            # true and false are t and f.
            ends = np.where((first == ord("t")) | (first == ord("f")), starts + 1, ends)
            null = first == ord("n")
            ends = np.where(null, starts, ends)
        values = gather_binary(self.data, starts, ends)
        if self.has_escapes and is_text.any():
            values = unescaped(values)
        if is_text.all() or not null.any():
            return values
        valid = pa.py_buffer(np.packbits(~null, bitorder="little"))
        return pa.Array.from_buffers(pa.binary(), len(values), [valid, *values.buffers()[1:]])

    def _next(self, places: np.ndarray, at: np.ndarray) -> np.ndarray:
        return np.asarray(places[np.minimum(np.searchsorted(places, at), len(places) - 1)])


def unescaped(values: pa.Array) -> pa.Array:
    """Return the text of JSON strings without quotes. Shape: binary[N] without nulls → binary[N]."""
    _, offsets, content = values.buffers()
    if content is None:
        return values
    ends = np.frombuffer(offsets, dtype=np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    data = np.frombuffer(content, dtype=np.uint8)[ends[0] : ends[-1]]
    slashes = np.flatnonzero(data == _BACKSLASH)
    if not len(slashes):
        return values
    escaping = _escaping(slashes)
    followers = data[escaping + 1]
    out, keep = data.copy(), np.ones(len(data), dtype=bool)
    out[escaping + 1] = _ESCAPED[followers]
    keep[escaping] = False
    coded = escaping[followers == _U]
    if len(coded):
        # The plug-in writes control characters only like this, so two of the four digits are zero.
        out[coded + 1] = _HEX[data[coded + 4]] << 4 | _HEX[data[coded + 5]]
        for place in range(2, 6):
            keep[coded + place] = False
    removed = np.flatnonzero(~keep)
    bounds = (ends - ends[0]) - np.searchsorted(removed, ends - ends[0], side="left")
    octets = pa.py_buffer(np.ascontiguousarray(out[keep]))
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(bounds.astype(np.int32)), octets])


def leaves(text: bytes) -> list[tuple[Path, int, int]]:
    """Return path, start and end of each value of a message that is neither an object nor an array, in order.

    row-wise: once a format. Raises ValueError or IndexError for what is not JSON without blanks.
    """
    found: list[tuple[Path, int, int]] = []
    if _walk(text, 0, (), found) != len(text):
        raise ValueError("more bytes behind the message")
    return found


def plain(text: bytes) -> str:
    """Return the text of one value, without quotes."""
    if not text.startswith(b'"'):
        return text.decode()
    values = unescaped(pa.array([text[1:-1]], pa.binary()))
    octets: bytes = values[0].as_py()
    return octets.decode()


def _walk(text: bytes, at: int, path: Path, places: list[tuple[Path, int, int]]) -> int:
    opening = text[at : at + 1]
    if opening not in (b"{", b"["):
        end = _value_end(text, at)
        places.append((path, at, end))
        return end
    closing, at, number = (b"}" if opening == b"{" else b"]"), at + 1, 0
    while text[at : at + 1] != closing:
        if text[at : at + 1] == b",":
            at += 1
        step: str | int = number
        if opening == b"{":
            stop = _value_end(text, at)
            step, at = plain(text[at:stop]), stop + 1
        at = _walk(text, at, (*path, step), places)
        number += 1
        if at >= len(text):
            raise ValueError("no end")
    return at + 1


def _value_end(text: bytes, at: int) -> int:
    """Return the end of a value that begins at ``at``.

    A type's name that is quoted twice ("a"."b") is no JSON, but the plug-in writes it: it ends before a delimiter.
    """
    while text[at] not in b",}]:":
        if text[at] == _QUOTE:
            at += 1
            while text[at] != _QUOTE:
                at += 2 if text[at] == _BACKSLASH else 1
        at += 1
    return at


def _escaping(slashes: np.ndarray) -> np.ndarray:
    """Return the backslashes that escape the byte after them: every other one of a run, from the first on."""
    new_run = np.ones(len(slashes), dtype=bool)
    new_run[1:] = np.diff(slashes) != 1
    number = np.arange(len(slashes))
    start = np.maximum.accumulate(np.where(new_run, number, 0))
    return np.asarray(slashes[(number - start) % 2 == 0])
