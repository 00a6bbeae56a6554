"""Splits array text into elements, vectorized: ``{1,NULL,"a \\"b\\""}`` becomes one flat string array and offsets.

One pass over the bytes finds the bytes escaped by backslashes, the quotes that open or close, and the commas and braces
outside of quotes; the elements are between them. Grammar: PostgreSQL manual §8.15.6 as written by ``array_out``: no
blanks around elements, NULL unquoted, every ambiguous element in quotes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools, Bytes, Ints
from cdc_core.types._flat import escaped_bytes, flatten, gather, per_row, running_count, strings_from

_QUOTE, _OPEN, _CLOSE = 0x22, 0x7B, 0x7D


@dataclass(frozen=True, slots=True)
class Split:
    """N split arrays.

    ``elements`` are the texts of all elements in order, null for NULL. ``offsets[N + 1]`` are each row's bounds.
    ``nested[N]`` marks arrays of more than one dimension, ``bad[N]`` text that is not an array; both, like nulls, have
    no elements. ``outer[N]`` counts the entries of the first dimension. ``bounded[N]`` marks arrays of which a lower
    bound is not one.
    """

    elements: pa.StringArray
    offsets: npt.NDArray[np.int32]
    nested: Bools
    bad: Bools
    outer: Ints
    bounded: Bools


@dataclass(frozen=True, slots=True)
class _ArrayTexts:
    """Rows with valid braces, with their bytes concatenated: ``index`` is each one's index in the input."""

    index: Ints
    data: Bytes
    starts: Ints
    ends: Ints

    def only(self, keep: Bools) -> _ArrayTexts:
        return _packed(self.index[keep], self.data, self.starts[keep], self.ends[keep])


@dataclass(frozen=True, slots=True)
class _Marks:
    """Which bytes are unescaped quotes, escaping backslashes, and braces and delimiters outside of quotes."""

    toggles: Bools
    escapes: Bools
    opens: Bools
    closes: Bools
    delimiters: Bools
    quotes_per_row: Ints


def split_arrays(text: pa.Array, delimiter: str = ",") -> Split:
    """Split N array texts; null rows have no elements. Never raises: text that is not an array is marked in ``bad``."""
    text, bounded = _without_bounds(text)
    data, starts, ends, valid = flatten(text)
    shaped = valid & (ends - starts >= 2)
    shaped[shaped] = (data[starts[shaped]] == _OPEN) & (data[ends[shaped] - 1] == _CLOSE)
    bad = valid & ~shaped
    # Rows that are not arrays are removed first, so that their quotes do not affect adjacent rows.
    index = np.flatnonzero(shaped)
    rows = _packed(index, data, starts[index], ends[index])
    marks = _marks(rows, delimiter)
    even = marks.quotes_per_row % 2 == 0
    if not even.all():
        bad[rows.index[~even]] = True
        rows = rows.only(even)
        marks = _marks(rows, delimiter)
    return _cut(rows, marks, bad, bounded)


def _without_bounds(text: pa.Array) -> tuple[pa.Array, Bools]:
    """Remove ``[2:4]=`` before an array whose lower bound is not one; the second result is where it was."""
    has_bounds = pc.fill_null(pc.starts_with(text, "["), False)
    bounded: Bools = has_bounds.to_numpy(zero_copy_only=False)
    if bounded.any():
        text = pc.replace_substring_regex(text, r"^(\[-?\d+:-?\d+\])+=", "")
    return text, bounded


def _packed(index: Ints, data: Bytes, starts: Ints, ends: Ints) -> _ArrayTexts:
    return _ArrayTexts(index, *gather(data, starts, ends))


def _marks(rows: _ArrayTexts, delimiter: str) -> _Marks:
    data = rows.data
    escapes, escaped = escaped_bytes(data)
    toggles = data == _QUOTE
    if escapes.any():
        toggles &= ~escaped
    opens, closes, delimiters = data == _OPEN, data == _CLOSE, data == ord(delimiter)
    if toggles.any():
        outside = np.cumsum(toggles, dtype=np.uint8) % 2 == 0
        opens, closes, delimiters = opens & outside, closes & outside, delimiters & outside
    return _Marks(toggles, escapes, opens, closes, delimiters, per_row(toggles, rows.starts))


def _cut(rows: _ArrayTexts, marks: _Marks, bad: Bools, bounded: Bools) -> Split:
    """Split every row at its delimiters; arrays of more dimensions are counted and marked."""
    nested = np.zeros(len(bad), dtype=bool)
    outer = np.zeros(len(bad), dtype=np.int64)
    sizes_of = np.zeros(len(bad), dtype=np.int64)
    opened = per_row(marks.opens, rows.starts)
    bad[rows.index[opened != per_row(marks.closes, rows.starts)]] = True
    many = opened > 1
    if many.any():
        nested[rows.index[many]] = True
        outer[rows.index[many]] = _outer_counts(marks, rows.starts)[many]
        marks.delimiters[np.repeat(many, rows.ends - rows.starts)] = False
    sizes = np.where(many | (rows.ends - rows.starts == 2), 0, per_row(marks.delimiters, rows.starts) + 1)
    inner = np.flatnonzero(marks.delimiters)
    owning = sizes > 0
    # Element bounds: from the opening brace or a delimiter to the next delimiter or the closing brace.
    lefts = np.sort(np.concatenate([rows.starts[owning], inner]))
    rights = np.sort(np.concatenate([inner, rows.ends[owning] - 1]))
    elements, wrong = _elements(rows.data, lefts + 1, rights, marks)
    row_of = np.repeat(rows.index[owning], sizes[owning])
    bad[row_of[wrong]] = True
    sizes_of[rows.index] = sizes
    if bad.any():
        elements = elements.filter(pa.array(~bad[row_of]))
        sizes_of[bad] = 0
        nested &= ~bad
    outer = np.where(nested, outer, sizes_of)
    offsets = np.zeros(len(bad) + 1, dtype=np.int32)
    np.cumsum(sizes_of, out=offsets[1:])
    return Split(elements, offsets, nested, bad, outer, bounded)


def _elements(data: Bytes, lefts: Ints, rights: Ints, marks: _Marks) -> tuple[pa.StringArray, Bools]:
    """Return element texts without quotes and escapes, and which of them are invalid."""
    keep = ~(marks.toggles | marks.escapes)
    content = running_count(keep)
    quotes = running_count(marks.toggles)
    counts = quotes[rights] - quotes[lefts]
    quoted = counts == 2
    lengths = content[rights] - content[lefts]
    wrong = (counts > 2) | (~quoted & ((counts > 0) | (lengths == 0)))
    wrong[quoted] = ~(marks.toggles[lefts[quoted]] & marks.toggles[rights[quoted] - 1])
    values = strings_from(data, keep, lefts, rights, lengths)
    null = pc.and_(pc.equal(values, "NULL"), pa.array(~quoted))
    if pc.any(null).as_py():
        values = pc.if_else(null, pa.scalar(None, pa.string()), values)
    return values, wrong


def _outer_counts(marks: _Marks, starts: Ints) -> Ints:
    """Return the number of entries in the first dimension of each row: braces that open at depth two."""
    steps = marks.opens.astype(np.int64) - marks.closes
    depth = np.cumsum(steps)
    before = np.concatenate([[0], depth])[starts]  # zero, unless an earlier row is malformed
    depth -= np.repeat(before, np.diff(np.append(starts, len(steps))))
    return per_row(marks.opens & (depth == 2), starts)
