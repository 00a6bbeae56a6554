"""Maps values to integers: two values have the same number exactly if PostgreSQL considers them equal.

``numbered`` numbers the distinct values of an array and returns a coder, which finds the numbers of other arrays of the
same type. Null is a separate value. It uses Arrow's hash tables only, one for each leaf of a nested type:

    leaf      the value; a float without the sign of its zero and with one NaN
    struct    its fields' numbers, two combined and numbered again at a time
    list      its elements' numbers as bytes
    map       a list of its entries ordered by key

``exact`` numbers distinguish 0 from -0, which are different texts in the source though equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Ints
from cdc_core.lake.rows.images import validity

UNKNOWN = -1
_LARGE_VALUE = 1 << 20


class Coder(Protocol):
    """Returns the numbers of values."""

    def codes(self, values: pa.Array) -> Ints:
        """Return the numbers of values, UNKNOWN for one that was not numbered. Shape: array[N] -> int64[N]."""
        ...


def numbered(values: pa.Array, exact: bool = False) -> tuple[Coder, np.ndarray]:
    """Number the distinct values in the order of their first occurrence. Shape: array[N] -> coder, int64[N]."""
    kind = values.type
    if pa.types.is_map(kind):
        return _Map.number(values, exact)
    if pa.types.is_struct(kind):
        return _Struct.number(values, exact)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _List.number(values, exact)
    return _Leaf.number(values, exact)


@dataclass(frozen=True, slots=True)
class _Leaf:
    values: pa.Array
    exact: bool

    @classmethod
    def number(cls, values: pa.Array, exact: bool) -> tuple[_Leaf, np.ndarray]:
        if _is_one_large(values):
            return cls(values, exact), np.zeros(1, dtype=np.int64)
        encoded = _plain(values, exact).dictionary_encode(null_encoding="encode")
        return cls(encoded.dictionary, exact), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)

    def codes(self, values: pa.Array) -> np.ndarray:
        if _is_one_large(self.values):
            same = pc.equal(values, self.values[0]).fill_null(False)
            return np.where(same.to_numpy(zero_copy_only=False), 0, UNKNOWN).astype(np.int64)
        numbers = pc.index_in(_plain(values, self.exact), value_set=self.values)
        return np.asarray(numbers.fill_null(UNKNOWN).to_numpy(zero_copy_only=False), dtype=np.int64)


def _is_one_large(values: pa.Array) -> bool:
    """Whether this is one text of megabytes, of which a hash table would keep copies."""
    is_text = pa.types.is_string(values.type) or pa.types.is_binary(values.type)
    return is_text and len(values) == 1 and values.nbytes > _LARGE_VALUE


@dataclass(frozen=True, slots=True)
class Tuples:
    """Numbers the rows of several parallel arrays: the coder of composite keys, of structs, of entire rows.

    ``steps[n]`` numbers the pairs of (number of the first n + 1 values, number of the next).
    """

    parts: tuple[Coder, ...]
    widths: tuple[int, ...]
    steps: tuple[_Leaf, ...]

    @classmethod
    def number(cls, columns: Sequence[pa.Array], exact: bool = False) -> tuple[Tuples, np.ndarray]:
        """As ``numbered``, for the rows of at least one column."""
        parts, widths, steps = [], [], []
        code = np.zeros(0, dtype=np.int64)
        for number, values in enumerate(columns):
            part, mine = numbered(values, exact)
            parts.append(part)
            widths.append(int(mine.max(initial=-1)) + 1)
            if number == 0:
                code = mine
                continue
            step, code = _Leaf.number(pa.array(code * widths[-1] + mine), exact)
            steps.append(step)
        return cls(tuple(parts), tuple(widths), tuple(steps)), code

    def codes(self, columns: Sequence[pa.Array]) -> Ints:
        """Return the numbers of rows, UNKNOWN for one that was not numbered. Shape: array[N] each -> int64[N]."""
        code = self.parts[0].codes(columns[0])
        if not self.steps:
            return code
        live = np.flatnonzero(code >= 0)
        numbers = code[live]
        for part, width, step, values in zip(self.parts[1:], self.widths[1:], self.steps, columns[1:], strict=True):
            mine = part.codes(values if len(live) == len(code) else values.take(pa.array(live)))
            known = mine >= 0
            live = live[known]
            numbers = step.codes(pa.array(numbers[known] * width + mine[known]))
            known = numbers >= 0
            live, numbers = live[known], numbers[known]
        out = np.full(len(code), UNKNOWN, dtype=np.int64)
        out[live] = numbers
        return out


@dataclass(frozen=True, slots=True)
class _Struct:
    fields: Tuples

    @classmethod
    def number(cls, values: pa.Array, exact: bool) -> tuple[_Struct, np.ndarray]:
        fields, code = Tuples.number(cls._columns(values), exact)
        return cls(fields), code

    def codes(self, values: pa.Array) -> np.ndarray:
        return self.fields.codes(self._columns(values))

    @staticmethod
    def _columns(values: pa.Array) -> list[pa.Array]:
        return [values.is_valid(), *values.flatten()]


@dataclass(frozen=True, slots=True)
class _List:
    elements: Coder
    lists: _Leaf

    @classmethod
    def number(cls, values: pa.Array, exact: bool) -> tuple[_List, np.ndarray]:
        elements, mine = numbered(values.flatten(), exact)
        lists, code = _Leaf.number(_bytes(mine, values), exact)
        return cls(elements, lists), code

    def codes(self, values: pa.Array) -> np.ndarray:
        return self.lists.codes(_bytes(self.elements.codes(values.flatten()), values))


@dataclass(frozen=True, slots=True)
class _Map:
    keys: Coder
    entries: Tuples
    lists: _Leaf

    @classmethod
    def number(cls, values: pa.Array, exact: bool) -> tuple[_Map, np.ndarray]:
        lists = _entry_lists(values)
        entries = lists.flatten().flatten()
        keys, by = numbered(entries[0], exact)
        coder, mine = Tuples.number(entries, exact)
        leaf, code = _Leaf.number(_bytes(mine[_by_key(lists, by)], lists), exact)
        return cls(keys, coder, leaf), code

    def codes(self, values: pa.Array) -> np.ndarray:
        lists = _entry_lists(values)
        entries = lists.flatten().flatten()
        mine = self.entries.codes(entries)
        return self.lists.codes(_bytes(mine[_by_key(lists, self.keys.codes(entries[0]))], lists))


def _entry_lists(values: pa.Array) -> pa.Array:
    kind = pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])
    return values.cast(pa.list_(kind))


def _lengths(lists: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False), dtype=np.int64)


def _by_key(lists: pa.Array, keys: np.ndarray) -> np.ndarray:
    """Return the order that sorts each map's entries by the number of their key."""
    return np.lexsort((keys, np.repeat(np.arange(len(lists)), _lengths(lists))))


def _bytes(elements: np.ndarray, lists: pa.Array) -> pa.Array:
    """Return each list as the bytes of its elements' numbers. Shape: int64[E], list[N] -> large_binary[N]."""
    offsets = np.concatenate(([0], np.cumsum(_lengths(lists)))).astype(np.int64) * 8
    bits = pa.array(validity(lists)).buffers()[1] if lists.null_count else None
    data = pa.py_buffer(np.ascontiguousarray(elements, dtype=np.int64))
    return pa.Array.from_buffers(pa.large_binary(), len(lists), [bits, pa.py_buffer(offsets), data])


def _plain(values: pa.Array, exact: bool) -> pa.Array:
    """Convert leaf values to a type that Arrow can hash, floats to the bits of one of their equal values."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _plain(values.dictionary_decode(), exact)
    if pa.types.is_string_view(kind):
        return values.cast(pa.string())
    if pa.types.is_binary_view(kind):
        return values.cast(pa.binary())
    if not pa.types.is_floating(kind):
        return values
    wide = np.array(values.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False))
    if not exact:
        wide += 0.0  # -0 becomes 0
    wide[np.isnan(wide)] = np.nan
    return pa.array(wide.view(np.int64), mask=None if not values.null_count else ~validity(values))
