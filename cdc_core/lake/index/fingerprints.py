"""64-bit numbers by which keys are searched: equal keys have equal ones, in both directions if they are *exact*.

A key of one column whose type is an integer of at most eight bytes (also dates, times and timestamps) is its own
number. Others are searched by their hash (``rows/key_hash``), and what is found is compared with the true values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Ints
from cdc_core.lake.rows.images import validity
from cdc_core.lake.rows.key_hash import row_hashes
from cdc_core.lake.rows.row_keys import KeyColumns, KeyIndex


def exact_numbers(columns: KeyColumns, parts: Sequence[pa.Array]) -> Ints | None:
    """Return keys as integers; None if some key cannot be one. Shape: array[N] each -> int64[N].

    ``parts`` are those of ``KeyColumns.parts``. A null is not an integer, and neither is a value that is only known as
    text (``__rescued``).
    """
    if not _may_be_exact(columns, parts) or any(part.null_count for part in parts[:1]):
        return None
    return None if _has_texts(parts) else _integers(parts[0])


def hashes(parts: Sequence[pa.Array]) -> np.ndarray:
    """Return the hashes of keys. Shape: array[N] each -> uint64[N]."""
    # Null has one hash whatever its type is; a column of nulls need not be looked at.
    return row_hashes([pa.nulls(len(part)) if part.null_count == len(part) else part for part in parts])


@dataclass(frozen=True)
class Wanted:
    """The keys of a ``KeyIndex`` as they are searched for in index files."""

    index: KeyIndex

    @cached_property
    def exact(self) -> tuple[np.ndarray, np.ndarray]:
        """The keys that are integers, ascending, and their numbers in the index. Shape: int64[K], int64[K]."""
        parts = list(self.index.values)
        if not _may_be_exact(self.index.columns, parts):
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        able = validity(parts[0])
        for text in parts[1:]:
            able = able & ~validity(text)
        numbers = np.flatnonzero(able)
        if len(numbers) < len(able):
            parts = [part.take(pa.array(numbers)) for part in parts]
        keys = _integers(parts[0])
        order = np.argsort(keys)
        return keys[order], numbers[order]

    @cached_property
    def hashed(self) -> np.ndarray:
        """The distinct hashes of all keys, ascending. Shape: uint64[K]."""
        return np.unique(hashes(self.index.values))


def _may_be_exact(columns: KeyColumns, parts: Sequence[pa.Array]) -> bool:
    kind = parts[0].type
    return len(columns.names) == 1 and bool(
        (pa.types.is_integer(kind) and kind != pa.uint64())
        or pa.types.is_date(kind)
        or pa.types.is_time(kind)
        or pa.types.is_timestamp(kind)
    )


def _has_texts(parts: Sequence[pa.Array]) -> bool:
    return any(text.null_count < len(text) for text in parts[1:])


def _integers(values: pa.Array) -> Ints:
    """Return values of an integer-like type without nulls. Shape: array[N] -> int64[N]."""
    if not pa.types.is_integer(values.type):
        values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return np.asarray(pc.cast(values, pa.int64()).to_numpy(zero_copy_only=False))
