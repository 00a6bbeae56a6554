"""Parsing of floats and lists, shared by points and vectors."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools
from cdc_core.types._flat import masked

_FLOAT = r"^([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|-?Infinity|NaN)$"


def floats(text: pa.Array, arrow_type: pa.DataType) -> tuple[pa.Array, Bools]:
    """Convert float4out's and float8out's text to numbers; also returns which texts are invalid. Null is not bad."""
    bad = np.zeros(len(text), dtype=bool)
    try:
        return pc.cast(text, arrow_type), bad
    except pa.ArrowInvalid:
        bad = ~pc.fill_null(pc.match_substring_regex(text, _FLOAT), True).to_numpy(zero_copy_only=False)
        return pc.cast(masked(text, bad), arrow_type), bad


def any_per_row(flags: Bools, offsets: np.ndarray[tuple[int], np.dtype[np.int32]]) -> Bools:
    """Return whether any of a list's elements is flagged."""
    if not flags.any():
        return np.zeros(len(offsets) - 1, dtype=bool)
    before = np.concatenate([[0], np.cumsum(flags)])
    found: Bools = before[offsets[1:]] > before[offsets[:-1]]
    return found
