"""Finds rows of a lake table by their keys: in which data file, and at which position in it.

Each data file has an index (``index_file``), which is made from the file's key columns when it is first needed, or from
rows in hand when the file is written. The data file is never changed, so neither is its index: rows that a deletion
vector marks as deleted are left out when they are found.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Bools
from cdc_core.lake.delta.candidates import Ranges
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.machine_folder import MachineFolder
from cdc_core.lake.index.fingerprints import Wanted
from cdc_core.lake.index.index_file import FileIndex, IndexedFile, open_index, write_index
from cdc_core.lake.rows.row_keys import KeyColumns, KeyIndex

# Each mapped file is one area of the process's address space, of which Linux allows 65,530.
_MOST_OPEN = 4_096
_TOUCH_SECONDS = 60.0
# Above it the pages are given back after each search; they remain in the system's page cache.
_RESIDENT_BYTES = 512 << 20


class Keyed(Protocol):
    """What is used of a lake table (``DeltaTable``)."""

    @property
    def identity(self) -> str:
        """The table's id in Delta's log."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        ...

    @property
    def files(self) -> list[DataFile]:
        """The data files of the loaded version."""
        ...

    def read(self, file: DataFile, columns: Sequence[str] | None = None, *, whole: bool = False) -> pa.Table:
        """Return the rows of one file; with ``whole`` also those that are marked as deleted."""
        ...

    def unmarked(self, file: DataFile, places: np.ndarray) -> Bools:
        """Return which positions of a file are not marked as deleted. Shape: int64[P] -> bool[P]"""
        ...


class IndexesMissingError(Exception):
    """Indexes are missing that take longer to make than the caller waits; nothing was found. Some were made."""


@dataclass(frozen=True, slots=True)
class Hits:
    """Rows of a data file that have wanted keys, none marked as deleted. Shape: int64[H] each, ``places`` ascending.

    ``places`` are positions in the Parquet file, counted from 0 over all its rows; ``keys`` are the keys' numbers.
    """

    file: DataFile
    places: np.ndarray
    keys: np.ndarray


@dataclass(slots=True)
class _Open:
    name: str
    index: FileIndex
    touched: float


@dataclass(frozen=True, slots=True)
class _Key:
    """A table and its key: what the indexes of its files have in common."""

    table: str
    columns: KeyColumns
    types: tuple[pa.DataType, ...]

    @classmethod
    def of(cls, lake: Keyed, columns: KeyColumns) -> _Key:
        return cls(lake.identity, columns, tuple(lake.schema.field(name).type for name in columns.names))

    @property
    def parts(self) -> list[pa.DataType]:
        """The types of ``KeyColumns.parts``."""
        types = []
        for kind, with_text in zip(self.types, self.columns.with_text, strict=True):
            types += [kind, pa.string()] if with_text else [kind]
        return types

    def source(self, file: DataFile) -> IndexedFile:
        return IndexedFile(
            self.table, file.path, file.size, file.rows, self.columns.names, tuple(str(kind) for kind in self.types)
        )


class KeyPositions:
    """The indexes of all tables of a worker. For one thread.

    ``folder`` is created when it is first written; ``max_bytes`` bounds the index files in it.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = MachineFolder(folder, max_bytes, ".keys", "indexes of keys")
        self._open: OrderedDict[tuple[_Key, str, int, int], _Open] = OrderedDict()
        self._mapped = 0  # bytes of the open ones
        self._files: dict[_Key, dict[str, DataFile]] = {}
        self._missing: dict[_Key, int] = {}

    def locate(self, lake: Keyed, files: Sequence[DataFile], keys: KeyIndex, seconds: float = math.inf) -> list[Hits]:
        """Return the rows of ``files`` with wanted keys, one item for each file that has any, in the order of files.

        Two keys are equal exactly if ``KeyIndex.match`` says so. Raises IndexesMissingError if the indexes that these
        files lack take longer than ``seconds`` to make; not if there are as many as the last time, as in a folder that
        cannot be written or is too small: then waiting is of no use.
        """
        if not files or not len(keys.values[0]):
            return []
        key = _Key.of(lake, keys.columns)
        if [part.type for part in keys.values] != key.parts:
            # Of other types than the lake's columns: their numbers may differ although the keys are equal.
            return [hits for hits in (_scanned(lake, file, keys) for file in files) if hits is not None]
        self._forget_removed(key, lake.files)
        sought = Wanted(keys)
        ranges = _ranges(keys)
        # Statistics cost more than a search, but less than an index.
        indexed = [(file, self._opened(key, file)) for file in files]
        missing = [file for file, index in indexed if index is None and ranges.may_be_in(file)]
        made = self._made_in(lake, key, missing, seconds)
        candidates: list[_Found] = []
        for file, there in indexed:
            index = there or made.get(file.path)
            if index is None:
                continue
            rows, which = index.candidates(sought)
            if len(rows):
                candidates.append(_Found(file, index, rows, which))
        hits = _verified(candidates, sought)
        self._folder.keep_bound()
        self._give_back([candidate.index for candidate in candidates])
        return [live_hits for live_hits in (_live(lake, file_hits) for file_hits in hits) if len(live_hits.places)]

    def add(self, lake: Keyed, file: DataFile, rows: pa.Table, columns: KeyColumns) -> None:
        """Index a file of which the rows are in hand, in the order in which they were written.

        Shape: table[N] with the columns of ``columns.read`` in the lake's types
        """
        key = _Key.of(lake, columns)
        if file.rows and self._opened(key, file) is None:
            self._saved(key, file, FileIndex.of(columns, columns.parts(rows)))

    def ready(self, lake: Keyed, files: Iterable[DataFile], columns: KeyColumns, seconds: float) -> bool:
        """Make missing indexes for about ``seconds``; returns whether all files have one."""
        key, end = _Key.of(lake, columns), time.monotonic() + seconds
        for file in files:
            if self._opened(key, file) is None:
                if time.monotonic() >= end:
                    return False
                self._made(lake, key, file)
        self._folder.keep_bound()
        return True

    def _made_in(self, lake: Keyed, key: _Key, missing: Sequence[DataFile], seconds: float) -> dict[str, FileIndex]:
        """Make indexes, by the paths of their files. Raises IndexesMissingError, as ``locate`` does."""
        made, end = dict[str, FileIndex](), time.monotonic() + seconds
        before = self._missing.get(key)
        may_wait = before is None or len(missing) < before
        # The last ones first: a task that makes them all (``ready``) begins with the first ones.
        for file in reversed(missing):
            if may_wait and time.monotonic() >= end:
                self._missing[key] = len(missing)
                self._folder.keep_bound()
                raise IndexesMissingError
            made[file.path] = self._made(lake, key, file)
        if may_wait:
            self._missing.pop(key, None)
        return made

    def _forget_removed(self, key: _Key, files: Sequence[DataFile]) -> None:
        """Remove the indexes of files that were part of the table at the last search and no longer are.

        Those that another process saw last remain until they are too old (``MachineFolder``).
        """
        before, now = self._files.get(key, {}), {file.path: file for file in files}
        for path in before.keys() - now.keys():
            self._let_go(_place(key, before[path]))
            self._folder.remove(_name(key.source(before[path])))
        self._files[key] = now

    def _opened(self, key: _Key, file: DataFile) -> FileIndex | None:
        """Return the index of a file if it is there and can be believed."""
        place, now = _place(key, file), time.monotonic()
        entry = self._open.get(place)
        if entry is not None:
            self._open.move_to_end(place)
            if now - entry.touched < _TOUCH_SECONDS:
                return entry.index
            entry.touched = now
            if self._folder.touch(entry.name):
                return entry.index
            self._let_go(place)
        source = key.source(file)
        name = _name(source)
        index = open_index(self._folder.of(name), source, key.parts)
        if index is not None:
            self._folder.touch(name)
            self._hold(place, _Open(name, index, now))
        return index

    def _made(self, lake: Keyed, key: _Key, file: DataFile) -> FileIndex:
        rows = lake.read(file, key.columns.read, whole=True)
        return self._saved(key, file, FileIndex.of(key.columns, key.columns.parts(rows)))

    def _saved(self, key: _Key, file: DataFile, index: FileIndex) -> FileIndex:
        """Write an index and return it as mapped from its file; the one in memory if that is not possible."""
        source = key.source(file)
        name = _name(source)

        def write(target: BinaryIO) -> None:
            write_index(target, index, source)

        if len(index.numbers) != file.rows or not self._folder.save(name, write):
            return index
        mapped = open_index(self._folder.of(name), source, key.parts)
        if mapped is None:
            return index
        self._hold(_place(key, file), _Open(name, mapped, time.monotonic()))
        return mapped

    def _hold(self, place: tuple[_Key, str, int, int], opened: _Open) -> None:
        self._let_go(place)
        self._open[place] = opened
        self._mapped += opened.index.mapped_bytes
        if len(self._open) > _MOST_OPEN:
            self._let_go(next(iter(self._open)))

    def _let_go(self, place: tuple[_Key, str, int, int]) -> None:
        entry = self._open.pop(place, None)
        self._mapped -= 0 if entry is None else entry.index.mapped_bytes

    def _give_back(self, used: Iterable[FileIndex]) -> None:
        if self._mapped > _RESIDENT_BYTES:
            for index in used:
                index.release()


@cache
def positions_in(folder: str, max_bytes: int) -> KeyPositions:
    """Return this process's indexes in a folder."""
    return KeyPositions(Path(folder), max_bytes)


@dataclass(frozen=True, slots=True)
class _Found:
    """Rows of an index whose numbers are wanted, and which number each has. Shape: int64[H] each."""

    file: DataFile
    index: FileIndex
    rows: np.ndarray
    which: np.ndarray


def _verified(candidates: Sequence[_Found], sought: Wanted) -> list[Hits]:
    """Return the rows whose keys are equal to wanted ones, ascending by their positions."""
    hashed = [candidate for candidate in candidates if candidate.index.parts is not None]
    numbers = _compared(hashed, sought.index)
    hits = []
    for candidate in candidates:
        places = candidate.index.places(candidate.rows)
        keys = sought.exact[1][candidate.which] if candidate.index.parts is None else numbers.pop(0)
        known = np.flatnonzero(keys >= 0)
        order = known[np.argsort(places[known])]
        hits.append(Hits(candidate.file, places[order], keys[order]))
    return hits


def _compared(candidates: Sequence[_Found], keys: KeyIndex) -> list[np.ndarray]:
    """Return the numbers of rows' keys, compared by their values, -1 for a key that only has the hash of another."""
    if not candidates:
        return []
    taken = [
        [part.take(pa.array(candidate.rows)) for part in candidate.index.parts]
        for candidate in candidates
        if candidate.index.parts is not None
    ]
    # Together: a comparison makes a hash table of the wanted keys.
    codes = keys.coder.codes([pa.concat_arrays(list(part)) for part in zip(*taken, strict=True)])
    return np.split(codes, np.cumsum([len(candidate.rows) for candidate in candidates])[:-1])


def _scanned(lake: Keyed, file: DataFile, keys: KeyIndex) -> Hits | None:
    codes = keys.match(lake.read(file, keys.columns.read, whole=True))
    places = np.flatnonzero(codes >= 0)
    hits = _live(lake, Hits(file, places, codes[places]))
    return hits if len(hits.places) else None


def _live(lake: Keyed, hits: Hits) -> Hits:
    """Return the hits without rows that are marked as deleted."""
    live = lake.unmarked(hits.file, hits.places)
    return hits if live.all() else Hits(hits.file, hits.places[live], hits.keys[live])


def _ranges(keys: KeyIndex) -> Ranges:
    """Return the wanted keys' ranges, without columns that have values known as text only."""
    parts, columns = iter(keys.values), {}
    for name, with_text in zip(keys.columns.names, keys.columns.with_text, strict=True):
        columns[name] = next(parts)
        if with_text:
            next(parts)
    return Ranges.of(pa.table(columns), list(columns))


def _place(key: _Key, file: DataFile) -> tuple[_Key, str, int, int]:
    return key, file.path, file.size, file.rows


def _name(source: IndexedFile) -> str:
    return hashlib.blake2b(json.dumps(source.as_json()).encode(), digest_size=16).hexdigest()
