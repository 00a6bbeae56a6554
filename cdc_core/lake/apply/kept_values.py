"""The values that new rows keep of lake rows (TOAST): where these rows are, and what is read of them.

A row keeps values of the row at its own key, or of the one at the key that it had before the slice. Only the places of
these are known at first. Where rows are marked, new rows are made in the order in which the lake has what they keep,
some at a time, so that no file is read twice and a slice of any number of key changes takes the memory of some rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.lake.apply.rewrite import joined, parts_of, with_kept_values
from cdc_core.lake.delta.candidates import Content
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.row_groups import release
from cdc_core.lake.index.key_positions import Hits
from cdc_core.lake.names import RESCUED
from cdc_core.lake.reduce.latest import ReducedSlice
from cdc_core.lake.rows.images import indices


@dataclass(frozen=True, slots=True)
class RowPlaces:
    """Lake rows by the numbers of their ``files`` and their places in them; -1 for none. Shape: int64[N] each"""

    content: Content
    files: Sequence[DataFile]
    file: np.ndarray
    place: np.ndarray

    @classmethod
    def of(cls, content: Content, hits: Sequence[Hits], count: int) -> RowPlaces:
        """Return the lake rows at ``count`` keys; of several at one key, which a damaged table has, the first."""
        file, place = (np.full(count, -1, dtype=np.int64) for _ in range(2))
        for number, file_hits in reversed(list(enumerate(hits))):
            file[file_hits.keys] = number
            place[file_hits.keys[::-1]] = file_hits.places[::-1]  # of equal keys the first place is kept
        return cls(content, [file_hits.file for file_hits in hits], file, place)

    def take(self, numbers: np.ndarray) -> RowPlaces:
        """Return some of them, none for negative ``numbers``. Shape: int64[M] -> [M]"""
        file, place = (np.where(numbers < 0, -1, values[numbers]) for values in (self.file, self.place))
        return RowPlaces(self.content, self.files, file, place)

    def read(self, names: Sequence[str]) -> pa.Table:
        """Return columns of the rows, nulls for none; from each file once. Shape: -> table[N]"""
        schema = pa.schema([self.content.tracked_schema.field(name) for name in names])
        at, parts, count = np.full(len(self.file), -1, dtype=np.int64), [schema.empty_table()], 0
        for number in np.unique(self.file[self.file >= 0]).tolist():
            mine = np.flatnonzero(self.file == number)
            places, back = np.unique(self.place[mine], return_inverse=True)
            parts.append(self.content.read_at(self.files[number], places, names))
            at[mine], count = count + back, count + len(places)
        rows = pa.concat_tables(parts).combine_chunks()
        is_aligned = count == len(at) and bool((at == np.arange(count)).all())
        return rows if is_aligned else rows.take(indices(at))


@dataclass(frozen=True, slots=True)
class KeptValues:
    """The lake rows of which the rows of a slice keep values. Shape: [R]"""

    reduced: ReducedSlice
    lake: RowPlaces

    @classmethod
    def of(cls, reduced: ReducedSlice, places: RowPlaces) -> KeptValues:
        """Return them; ``places`` are those of the slice's keys."""
        return cls(reduced, places.take(reduced.seek))

    @property
    def moved(self) -> np.ndarray:
        """The keys whose rows keep values of rows at other keys. Shape: int64[M]"""
        seek = self.reduced.seek
        return np.flatnonzero((seek >= 0) & (seek != np.arange(len(seek))))

    def rows(self, keys: np.ndarray) -> pa.Table:
        """Return the new rows of keys, complete. Shape: int64[M] -> table[M]"""
        rows = self.reduced.rows.take(pa.array(keys))
        keep = {name: mask[keys] for name, mask in self.reduced.keep.items() if mask[keys].any()}
        return with_kept_values(rows, keep, self.lake.take(keys).read([*keep, RESCUED])) if keep else rows

    def in_pieces(self, keys: np.ndarray, places: RowPlaces, most: int, file_bytes: int) -> Iterator[pa.Table]:
        """Yield the new rows of keys, at most so many at a time, with the row ids of those at ``places`` of the keys.

        Shape: int64[M], places[R] -> tables of ``content.tracked_schema``
        """
        content = self.lake.content
        order = np.lexsort((self.lake.place[keys], self.lake.file[keys]))
        for start in range(0, len(order), most):
            piece = order[start : start + most]
            rows = self.rows(keys[piece])
            if len(content.tracked_schema) > len(content.schema):
                row_id = content.tracked_schema.field(len(content.schema))
                rows = rows.append_column(row_id, places.take(keys[piece]).read([row_id.name]).column(0))
            yield from parts_of(joined(content, [rows]), content.files, file_bytes)
            octets = rows.nbytes
            del rows
            release(octets)
