"""Converts common values vectorized, rare ones row by row: mask, convert, scatter. Rows on the slow path are counted.

Arrow's own casts refuse an entire array for one value they cannot read. So a conversion first tries the vector path on
all rows; only if that fails does it determine which rows are common, and converts only those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.types.codec import Converted

Vector = Callable[[pa.Array], pa.Array]
# Converts one rare text; raises ValueError (or OverflowError) if the type cannot represent it.
One = Callable[[str], Any]

_counts: Counter[str] = Counter()


def slow_rows() -> dict[str, int]:
    """Return the number of rows on the slow path in this process, by type."""
    return dict(_counts)


def reset_slow_rows() -> None:
    """Reset the counts to zero."""
    _counts.clear()


def refuse(text: str) -> Any:
    """The slow path of a type that cannot represent its rare values at all."""
    raise ValueError("the value does not fit the type")


def convert_with(label: str, text: pa.Array, vector: Vector, common: str, convert_one: One) -> Converted:
    """Convert ``text`` to the type of ``vector``.

    Shape:   text[N] -> type of vector[N]

    Nulls:   stay null

    Special: rows that do not match the regex ``common`` are converted by ``convert_one``; those that it refuses are bad
    """
    try:
        return Converted(vector(text))
    except pa.ArrowInvalid:
        pass
    likely = pc.fill_null(pc.match_substring_regex(text, common), True)
    try:
        fast = vector(pc.if_else(likely, text, pa.scalar(None, text.type)))
    except pa.ArrowInvalid:  # valid syntax, but not a value: month 13, or a number out of range
        if len(text) > 1:  # no server writes that; bisecting finds the row without affecting the others
            half = len(text) // 2
            parts = [
                convert_with(label, part, vector, common, convert_one)
                for part in (text.slice(0, half), text.slice(half))
            ]
            return _joined(parts)
        likely = pc.is_null(text)
        fast = vector(pa.nulls(len(text), text.type))
    return scatter(label, text, fast, ~likely.to_numpy(zero_copy_only=False), convert_one)


def _joined(parts: list[Converted]) -> Converted:
    values = pa.concat_arrays([part.values for part in parts])
    if all(part.bad is None for part in parts):
        return Converted(values)
    flags = [pa.array(np.zeros(len(part.values), dtype=bool)) if part.bad is None else part.bad for part in parts]
    return Converted(values, pa.concat_arrays(flags))


def scatter(label: str, text: pa.Array, fast: pa.Array, rare: np.ndarray, convert_one: One) -> Converted:
    """Return ``fast`` with the non-null rows of the mask ``rare`` converted by ``convert_one``."""
    if text.null_count:
        rare = rare & text.is_valid().to_numpy(zero_copy_only=False)
    places = np.flatnonzero(rare)
    if not len(places):
        return Converted(fast)
    _counts[label] += len(places)
    values: list[Any] = []
    refused: list[bool] = []
    # row-wise: only the rows that the vector path cannot read
    for value in text.take(pa.array(places)).to_pylist():
        try:
            values.append(convert_one(value))
            refused.append(False)
        except (ValueError, ArithmeticError):
            values.append(None)
            refused.append(True)
    slow = pa.array(values, fast.type)
    order = np.arange(len(fast))
    order[places] = len(fast) + np.arange(len(places))
    merged = pa.concat_arrays([fast, slow]).take(pa.array(order))
    if not any(refused):
        return Converted(merged)
    bad = np.zeros(len(fast), dtype=bool)
    bad[places[np.array(refused)]] = True
    return Converted(merged, pa.array(bad))
