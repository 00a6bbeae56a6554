"""The rows of both sides in the same columns and types, and what of them is compared.

The source's rows are read by COPY and typed as a snapshot types them; the lake's are what its files hold. So "equal"
is what it is everywhere else: the natural value of each captured column, masked as configured, or the text of a value
that its type cannot represent (``__rescued``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Bools
from cdc_core.lake.delta.conform import conform, plain_schema
from cdc_core.lake.names import META, RESCUED
from cdc_core.lake.rows.images import column, rescued_of, texts_of
from cdc_core.lake.rows.key_hash import mixed, row_digests
from cdc_core.lake.rows.row_keys import KeyColumns, KeyIndex


@dataclass(frozen=True, slots=True)
class Compared:
    """The compared columns of a table: ``schema`` has the captured columns by their names and types in the lake.

    A table without a key is compared as a multiset, one with a key (``KeyedColumns``) by its keys.
    """

    schema: pa.Schema

    @classmethod
    def of(cls, captured: pa.Schema, lake: pa.Schema, key: Sequence[str]) -> Compared:
        """``captured`` are the columns as the source's rows are typed. Columns that the lake lacks are left out.

        Returns ``KeyedColumns`` unless ``key`` is empty.
        """
        by_name = {field.name.lower(): field for field in plain_schema(lake)}
        named = [field.name.lower() for field in captured if field.name not in _META_NAMES]
        schema = pa.schema([*(by_name[name] for name in named if name in by_name), *META])
        return KeyedColumns(schema, KeyColumns.of(key, schema)) if key else cls(schema)

    @property
    def names(self) -> list[str]:
        """The columns that are compared, without ``__rescued``."""
        return [field.name for field in self.schema if field.name not in _META_NAMES and field.name != RESCUED]

    @property
    def read(self) -> list[str]:
        """The lake's columns that a digest needs."""
        return [*self.names, *([RESCUED] if RESCUED in self.schema.names else [])]

    def conformed(self, rows: pa.Table) -> pa.Table:
        """Return rows of either side, or images of change rows, in the schema. Raises ArrowInvalid."""
        return conform(rows, self.schema)

    def digests(self, rows: pa.Table) -> np.ndarray:
        """Return a 64-bit digest of the compared values of each row. Shape: schema[N] -> uint64[N]"""
        names = self.names
        texts = texts_of(column(rows, RESCUED)) if RESCUED in rows.schema.names else {}
        texts = {name: texts[name] for name in names if name in texts}
        rescued = rescued_of(texts, rows.num_rows) if texts else pa.nulls(rows.num_rows)
        return row_digests([*(column(rows, name) for name in names), rescued])


@dataclass(frozen=True, slots=True)
class KeyedColumns(Compared):
    """The compared columns of a table with a key."""

    key: KeyColumns

    @property
    def key_schema(self) -> pa.Schema:
        """The columns by which rows are found (``KeyColumns.read``)."""
        return pa.schema([self.schema.field(name) for name in self.key.read])

    def keys_of(self, rows: pa.Table) -> pa.Table:
        """Return the keys of rows. Shape: schema[N] -> key_schema[N]"""
        return rows.select(self.key.read).combine_chunks()

    def distinct(self, keys: pa.Table) -> pa.Table:
        """Return each key once. Shape: key_schema[K] -> key_schema[D]"""
        if not keys.num_rows:
            return keys
        _, codes = KeyIndex.of(self.key, keys)
        return keys.take(pa.array(np.unique(codes, return_index=True)[1]))


_META_NAMES = frozenset(each.name for each in META)


def surplus(lake: np.ndarray, source: np.ndarray) -> np.ndarray:
    """Return the digests that the two sides do not have equally often, sorted. Shape: uint64[N], uint64[M] -> [D]"""
    # Sums of spread digests: of different multisets they are equal with a probability of 2^-64. Sorting takes longer.
    if len(lake) == len(source) and np.add.reduce(mixed(lake)) == np.add.reduce(mixed(source)):
        return lake[:0]
    lake, source = np.sort(lake), np.sort(source)
    if np.array_equal(lake, source):
        return lake[:0]
    mine, theirs = _counted(lake), _counted(source)
    return np.union1d(_unlike(mine, theirs), _unlike(theirs, mine))


def _counted(digests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a sorted array, and how often each is there."""
    first = np.ones(len(digests), dtype=bool)
    first[1:] = digests[1:] != digests[:-1]
    at = np.flatnonzero(first)
    return digests[at], np.diff(np.append(at, len(digests)))


def _unlike(mine: tuple[np.ndarray, np.ndarray], others: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the values that the others do not have as often."""
    (values, count), (known, their_count) = mine, others
    if not len(known):
        return values
    at = np.minimum(np.searchsorted(known, values), len(known) - 1)
    same = (known[at] == values) & (their_count[at] == count)
    return np.asarray(values[~same])


def is_among(digests: np.ndarray, members: np.ndarray) -> Bools:
    """Return which digests are among some sorted ones. Shape: uint64[N], uint64[D] -> bool[N]"""
    if not len(members):
        return np.zeros(len(digests), dtype=bool)
    at = np.minimum(np.searchsorted(members, digests), len(members) - 1)
    return np.asarray(members[at] == digests)
