"""Reads single rows of a Parquet file by their positions: only the pages that contain them.

Arrow reads whole row groups. So the wanted pages are put together to a small Parquet file in memory, with a footer that
names only them, and Arrow reads that. Which rows a page has is in the file's offset index (Parquet's "page index"); the
files written here have one, and pages of so few rows that a row costs little.

Columns are read together if the pages of all of them have the same rows, as they normally have.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cdc_core.arrays import Ints
from cdc_core.lake.delta.thrift import I64, STRUCT, Fields, ThriftReader, written

_MAGIC = b"PAR1"
# Fields of Parquet's metadata (parquet.thrift).
_SCHEMA, _ROWS, _GROUPS = 2, 3, 4
_CHILDREN, _NAME, _REPETITION, _REPEATED = 5, 4, 3, 2
_COLUMNS, _GROUP_BYTES, _GROUP_ROWS = 1, 2, 3
_META, _INDEX_AT, _INDEX_SIZE = 3, 4, 5
_TYPE, _ENCODINGS, _PATH, _CODEC, _VALUES, _PLAIN_SIZE, _SIZE, _DATA_AT, _DICTIONARY_AT = 1, 2, 3, 4, 5, 6, 7, 9, 11
_PAGE_DATA, _PAGE_DATA_V2, _PAGE_VALUES = 5, 8, 1


@dataclass(slots=True)
class _ColumnPages:
    """One column of a row group: its metadata, and the place, bytes and first row of each page. Shape: [P] each"""

    meta: Fields
    at: np.ndarray
    size: np.ndarray
    first: np.ndarray

    def rows_of(self, places: np.ndarray, count: int) -> np.ndarray:
        """Return the first and end rows of the pages with some rows of ``count``. Shape: int64[P] -> int64[2, pages]"""
        pages = np.unique(np.searchsorted(self.first, places, side="right") - 1)
        return np.stack([self.first[pages], np.append(self.first[1:], count)[pages]])


# Measured: a page costs so much besides its bytes and rows, which cost the same as in a row group; under zstd, which
# begins each page anew, more.
_PAGE_SECONDS, _ZSTD_SECONDS, _BYTE_SECONDS, _ROW_SECONDS = 10e-6, 15e-6, 3e-9, 20e-9
_ZSTD = 6
# What reading raises where a file is not as expected.
NOT_READ = (ValueError, KeyError, IndexError, struct.error, OSError, pa.ArrowException)


@dataclass
class Pages:
    """The pages of a Parquet file, whose content is ``data`` (bytes).

    Reading raises one of NOT_READ if the file has no offset index, or is not as expected.
    """

    data: memoryview
    _chunks: dict[tuple[int, int], _ColumnPages] = field(default_factory=dict)

    @cached_property
    def _footer(self) -> Fields:
        size = struct.unpack("<I", self.data[-8:-4])[0]
        if bytes(self.data[-4:]) != _MAGIC:
            raise ValueError("Not a Parquet file.")
        return ThriftReader(self.data, len(self.data) - 8 - size).fields()

    @cached_property
    def _ends(self) -> np.ndarray:
        """The number of rows up to the end of each row group."""
        return np.cumsum([group[_GROUP_ROWS][1] for group in self._footer[_GROUPS][1][1]])

    @cached_property
    def _roots(self) -> dict[str, tuple[list[Fields], list[int]]]:
        """The schema's elements of each column, and the numbers of its leaves."""
        elements, roots, leaf, at = self._footer[_SCHEMA][1][1], {}, 0, 1
        while at < len(elements):
            end, open_ = at, 1
            leaves = []
            while open_:
                inside = elements[end].get(_CHILDREN, (0, 0))[1]
                open_ += inside - 1
                if not inside:
                    leaves.append(leaf)
                    leaf += 1
                end += 1
            roots[elements[at][_NAME][1].decode()] = (elements[at:end], leaves)
            at = end
        return roots

    @property
    def names(self) -> list[str]:
        """The file's columns."""
        return list(self._roots)

    def are_cheaper(self, names: Sequence[str], places: np.ndarray) -> bool:
        """Whether reading rows by their pages takes less time than reading the row groups that contain them."""
        by_pages = by_groups = 0.0
        groups, counts = np.unique(np.searchsorted(self._ends, places, side="right"), return_counts=True)
        rows = np.diff(self._ends, prepend=0)
        for group, count in zip(groups.tolist(), counts.tolist(), strict=True):
            for leaf in (leaf for name in names for leaf in self._roots[name][1]):
                chunk = self._chunk(group, leaf)
                touched, whole = min(count, len(chunk.at)), int(chunk.size.sum())
                seconds = whole * _BYTE_SECONDS + int(rows[group]) * _ROW_SECONDS
                by_groups += seconds
                begun = _PAGE_SECONDS + (_ZSTD_SECONDS if chunk.meta[_CODEC][1] == _ZSTD else 0)
                by_pages += touched * (begun + seconds / len(chunk.at))
        return by_pages < by_groups

    def read(self, names: Sequence[str], places: np.ndarray) -> pa.Table:
        """Return rows at ascending positions, in the file's types. Shape: int64[P] -> table[P] of ``names``"""
        if not len(places):
            raise ValueError("Without positions there is no page.")
        groups = np.searchsorted(self._ends, places, side="right")
        together: dict[bytes, list[str]] = {}
        pages_of: dict[bytes, list[tuple[int, np.ndarray]]] = {}
        for name in names:
            pages = list(self._selected(name, places, groups))
            key = b"".join(struct.pack("<q", group) + rows.tobytes() for group, rows in pages)
            together.setdefault(key, []).append(name)
            pages_of.setdefault(key, pages)
        parts: dict[str, pa.ChunkedArray] = {}
        for key, same in together.items():
            rows = pq.ParquetFile(pa.BufferReader(self._file(same, pages_of[key]))).read(use_threads=False)
            if rows.num_rows != sum(int((page_rows[1] - page_rows[0]).sum()) for _, page_rows in pages_of[key]):
                raise ValueError("The offset index and the pages have different rows.")
            at = _places_among(pages_of[key], places, groups, self._ends)
            taken = rows.take(pa.array(at))
            parts |= {name: taken.column(name) for name in same}
        return pa.table([parts[name] for name in names], names=list(names))

    def _selected(self, name: str, places: np.ndarray, groups: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the row groups with wanted rows, and the first and end rows of the pages that have them.

        Shape: int64[2, pages]
        """
        leaves = self._roots[name][1]
        for group in np.unique(groups).tolist():
            start = int(self._ends[group - 1]) if group else 0
            mine, count = places[groups == group] - start, int(self._ends[group]) - start
            page_rows, *others = (self._chunk(group, leaf).rows_of(mine, count) for leaf in leaves)
            if any(not np.array_equal(other, page_rows) for other in others):
                raise ValueError("The pages of a nested column have different rows.")
            yield group, page_rows

    def _chunk(self, group: int, leaf: int) -> _ColumnPages:
        chunk = self._chunks.get((group, leaf))
        if chunk is None:
            column = self._footer[_GROUPS][1][1][group][_COLUMNS][1][1][leaf]
            if _INDEX_AT not in column:
                raise ValueError("The file has no offset index.")
            start, size = column[_INDEX_AT][1], column[_INDEX_SIZE][1]
            places = page_places(self.data[start : start + size])
            chunk = _ColumnPages(column[_META][1], places[:, 0], places[:, 1], places[:, 2])
            self._chunks[group, leaf] = chunk
        return chunk

    def _file(self, names: Sequence[str], pages_by_group: Sequence[tuple[int, np.ndarray]]) -> bytes:
        """Return a Parquet file with the wanted pages of columns."""
        content: list[bytes | memoryview] = [_MAGIC]
        groups: list[dict[int, tuple[int, Any]]] = []
        at = len(_MAGIC)
        for group, rows in pages_by_group:
            columns = []
            for name in names:
                for leaf in self._roots[name][1]:
                    chunk = self._chunk(group, leaf)
                    pages = np.searchsorted(chunk.first, rows[0], side="right") - 1
                    values = None if self._is_nested(name) else int((rows[1] - rows[0]).sum())
                    meta, parts = self._copied(chunk, pages, values, at)
                    at += sum(len(part) for part in parts)
                    content += parts
                    columns.append({2: (I64, 0), _META: (STRUCT, meta)})
            count = int((rows[1] - rows[0]).sum())
            groups.append({_COLUMNS: (9, (STRUCT, columns)), _GROUP_BYTES: (I64, at), _GROUP_ROWS: (I64, count)})
        root = {**self._footer[_SCHEMA][1][1][0], _CHILDREN: (5, len(names))}
        elements = [root, *[element for name in names for element in self._roots[name][0]]]
        every = sum(row_group[_GROUP_ROWS][1] for row_group in groups)
        footer = written(
            {1: self._footer[1], _SCHEMA: (9, (STRUCT, elements)), _ROWS: (I64, every), _GROUPS: (9, (STRUCT, groups))}
        )
        return b"".join([*content, footer, struct.pack("<I", len(footer)), _MAGIC])

    def _is_nested(self, name: str) -> bool:
        (first, *others), _ = self._roots[name]
        return bool(others) or first.get(_REPETITION, (0, _REPEATED))[1] == _REPEATED

    def _copied(
        self, chunk: _ColumnPages, pages: np.ndarray, values: int | None, at: int
    ) -> tuple[Fields, list[memoryview]]:
        """Return a column's metadata for some of its pages, which are to stand at ``at``, and their bytes.

        ``values``: the number of values in them, None if it has to be read from them.
        """
        parts, meta, begins = [], {n: chunk.meta[n] for n in (_TYPE, _ENCODINGS, _PATH, _CODEC)}, at
        dictionary = chunk.meta.get(_DICTIONARY_AT)
        if dictionary is not None:
            parts.append(self.data[dictionary[1] : int(chunk.at[0])])
            at += len(parts[0])
        for start, length in zip(chunk.at[pages].tolist(), chunk.size[pages].tolist(), strict=True):
            parts.append(self.data[start : start + length])
        if values is None:
            values = sum(_values_in(page) for page in parts[dictionary is not None :])
        size = sum(len(part) for part in parts)
        # The size without compression is not needed to read a column, but it must not be 0.
        meta |= {_VALUES: (I64, values), _PLAIN_SIZE: (I64, size), _SIZE: (I64, size), _DATA_AT: (I64, at)}
        if dictionary is not None:
            meta[_DICTIONARY_AT] = (I64, begins)
        return meta, parts


# The bytes that stand around the three numbers of a page in the offset index: two headers of fields with an i64 and one
# with an i32, and the structure's end.
_AROUND = (0x16, 0x15, 0x16, 0)


def page_places(index: bytes | memoryview) -> np.ndarray:
    """Return place, bytes and first row of each page from an offset index. Shape: int64[pages, 3]

    A file has hundreds of thousands of pages. The last byte of a number, and each byte around it, is less than 128, and
    no other is, so the numbers are found without reading one after the other.
    """
    octets = np.frombuffer(index, dtype=np.uint8)
    # The structure's header, and that of its list with the number of pages: one byte up to 14.
    count = int(octets[1] >> 4)
    at = 2
    if count == 15:
        reader = ThriftReader(index, 2)
        count, at = reader.varint(), reader.at
    ends = at + np.flatnonzero(octets[at:] < 128)[: 7 * count]
    if len(ends) == 7 * count and count:
        ends = ends.reshape(count, 7)
        around, last = ends[:, 0::2], ends[:, 1::2]
        if (octets[around] == _AROUND).all() and (np.diff(ends[:, 0::2], axis=1) > 1).all():
            return np.stack([_numbers(octets, around[:, n] + 1, last[:, n]) for n in range(3)], axis=1)
    pages = ThriftReader(index).fields()[1][1][1]
    return np.array([[page[number][1] for number in (1, 2, 3)] for page in pages], dtype=np.int64).reshape(-1, 3)


def _numbers(octets: np.ndarray, first: np.ndarray, last: np.ndarray) -> Ints:
    """Return the numbers (zigzag varints) from their first to their last bytes. Shape: int64[N] each -> int64[N]"""
    numbers = np.zeros(len(first), dtype=np.uint64)
    for number in range(int((last - first).max()) + 1):
        at = first + number
        inside = at <= last
        part = octets[np.where(inside, at, last)].astype(np.uint64) & np.uint64(127)
        numbers |= np.where(inside, part << np.uint64(7 * number), np.uint64(0))
    return (numbers >> np.uint64(1)).astype(np.int64) ^ -(numbers & np.uint64(1)).astype(np.int64)


def _values_in(page: memoryview) -> int:
    header = ThriftReader(page).fields()
    return int(header[_PAGE_DATA if _PAGE_DATA in header else _PAGE_DATA_V2][1][_PAGE_VALUES][1])


def _places_among(
    pages_by_group: Sequence[tuple[int, np.ndarray]], places: np.ndarray, groups: np.ndarray, ends: np.ndarray
) -> Ints:
    """Return where the rows at ``places`` stand among the rows of the wanted pages. Shape: int64[P] -> int64[P]"""
    starts = np.concatenate([np.zeros(1, dtype=np.int64), ends])
    firsts = np.concatenate([rows[0] + starts[group] for group, rows in pages_by_group])
    sizes = np.concatenate([rows[1] - rows[0] for _, rows in pages_by_group])
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])
    page = np.searchsorted(firsts, places, side="right") - 1
    return np.asarray(before[page] + places - firsts[page])
