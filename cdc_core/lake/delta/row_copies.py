"""Copies of data files' rows on a machine's disk, as Arrow has them in memory: reading a row costs what the row is.

A row before a change may be anywhere in its file. Parquet is read by pages or row groups, so a thousand rows at random
places cost what reading the whole file costs. A copy is mapped instead, and only the wanted rows are touched.

A file that is written gets its copy from the rows in hand. Another one gets it once so many of its rows were read to
get some of them: so a file of which few rows are ever wanted has none, and no file costs more than a small multiple of
what the best choice would have cost.

    content    an Arrow IPC file: the data file's columns as they are named and typed there, in one batch a row group
    checksum   uint32 little-endian, CRC-32 of the content

A data file never changes and its name is used once, so a copy needs no check of its age. Its checksum is compared when
a process opens it: it is not forced to the disk, and may be incomplete after the machine has crashed.
"""

from __future__ import annotations

import errno
import hashlib
import io
import mmap
import os
import struct
import time
import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from cdc_core import failpoints
from cdc_core.lake.delta.conform import conform, plain_schema
from cdc_core.lake.delta.machine_folder import MachineFolder

_CHECKSUM = struct.Struct("<I")
_CHUNK = 1 << 20
# As for indexes of keys (``lake/index``): each is one mapping of the process.
_MOST_OPEN = 4_096
_MOST_NOTED = 65_536
# Random changes of a large table make the copies of many files worth it at once.
_MAKING_SECONDS = 0.5
# Above it the pages are given back after each reading; they remain in the system's page cache.
_RESIDENT_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class RowCopy:
    """The rows of one data file, with its own columns and types, in batches that end at the rows ``ends``."""

    mapped: mmap.mmap
    batches: list[pa.RecordBatch]
    ends: list[int]

    @classmethod
    def opened(cls, path: Path) -> RowCopy | None:
        """Map a copy; None if there is none, or it is not whole."""
        try:
            with path.open("rb") as file:
                if not _is_whole(file):
                    return None
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            return None
        mapped.madvise(mmap.MADV_RANDOM)
        reader = pa.ipc.open_file(pa.py_buffer(memoryview(mapped)[: -_CHECKSUM.size]))
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        return cls(mapped, batches, list(accumulate(batch.num_rows for batch in batches)))

    @property
    def names(self) -> list[str]:
        """The file's columns."""
        return list(self.batches[0].schema.names)

    def take(self, names: Sequence[str], places: np.ndarray) -> pa.Table:
        """Return rows at ascending positions. Shape: int64[P] -> table[P] of ``names``"""
        parts, start = [], 0
        for number in range(bisect_right(self.ends, places[0]), bisect_right(self.ends, places[-1]) + 1):
            end = int(np.searchsorted(places, self.ends[number]))
            first = self.ends[number - 1] if number else 0
            if end > start:
                parts.append(self.batches[number].select(list(names)).take(pa.array(places[start:end] - first)))
            start = end
        return pa.Table.from_batches(parts)


class RowCopies:
    """The copies of all tables of a machine, up to ``max_bytes``. For one thread."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = MachineFolder(folder, max_bytes, ".rows", "copies of rows")
        self._max = max_bytes
        self._open: OrderedDict[str, RowCopy] = OrderedDict()
        self._mapped = 0
        self._rows_read: OrderedDict[str, int] = OrderedDict()
        self._files: dict[str, frozenset[str]] = {}
        self._seconds = 0.0  # of making copies in this round of a table

    def of(self, file: str) -> RowCopy | None:
        """Return the copy of a data file, by its path; None if there is none."""
        name, copy = _name(file), self._open.get(file)
        if copy is not None and self._folder.touch(name):
            self._open.move_to_end(file)
            return copy
        if copy is not None:  # removed, so that others have room
            self._let_go(file)
            return None
        copy = RowCopy.opened(self._folder.of(name))
        if copy is not None:
            self._hold(file, copy)
            self._folder.touch(name)
        return copy

    def is_due(self, file: str, read: int, rows: int, octets: int) -> bool:
        """Note that ``read`` of a file's ``rows`` are about to be read; returns whether a copy is to be made instead.

        ``octets``: about the size that the copy would have. One that would take the round too long waits.
        """
        before = self._rows_read.pop(file, 0)
        if before >= rows and octets <= self._max and self._seconds <= _MAKING_SECONDS:
            return True
        self._rows_read[file] = before + read
        if len(self._rows_read) > _MOST_NOTED:
            self._rows_read.popitem(last=False)
        return False

    def made(self, file: str, rows: Iterable[pa.Table]) -> RowCopy | None:
        """Make the copy of a file of these rows, which are those of a row group each; None if it cannot be written."""

        def write(target: BinaryIO) -> None:
            try:
                _written(target, rows)
            except pa.ArrowException as error:  # a damaged file is reported by the reading that follows
                raise OSError(errno.EINVAL, f"Arrow reports {type(error).__name__}") from None

        began = time.monotonic()
        is_there = self._folder.save(_name(file), write)
        self._seconds += time.monotonic() - began
        if not is_there:
            return None
        self._folder.keep_bound()
        return self.of(file)

    def give_back(self, copy: RowCopy) -> None:
        """Take the pages of a copy out of the process's memory, if those of all copies may be many."""
        if self._mapped > _RESIDENT_BYTES:
            copy.mapped.madvise(mmap.MADV_DONTNEED)

    def begin(self, table: str, files: Iterable[str]) -> None:
        """Begin a round of a table with these files: copies of those that left it since the last one go."""
        self._seconds = 0.0
        before, now = self._files.get(table, frozenset()), frozenset(files)
        for file in before - now:
            self._let_go(file)
            self._folder.remove(_name(file))
            self._rows_read.pop(file, None)
        self._files[table] = now

    def _hold(self, file: str, copy: RowCopy) -> None:
        self._open[file] = copy
        self._mapped += len(copy.mapped)
        if len(self._open) > _MOST_OPEN:
            self._let_go(next(iter(self._open)))

    def _let_go(self, file: str) -> None:
        copy = self._open.pop(file, None)
        self._mapped -= 0 if copy is None else len(copy.mapped)


@cache
def copies_in(folder: str, max_bytes: int) -> RowCopies:
    """Return this process's copies in a folder."""
    return RowCopies(Path(folder), max_bytes)


class _Summed(io.RawIOBase):
    """Writes to ``target``, and has the checksum of what was written."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self.checksum = 0

    def writable(self) -> bool:
        """As ``io.RawIOBase.writable``."""
        return True

    def write(self, data: Any) -> int:
        """As ``io.RawIOBase.write``."""
        self.checksum = zlib.crc32(data, self.checksum)
        return self._target.write(data)


def _written(target: BinaryIO, rows: Iterable[pa.Table]) -> None:
    tables, content = iter(rows), _Summed(target)
    first = next(tables)
    schema = plain_schema(first.schema)  # Arrow cannot take rows of views
    buffered = pa.BufferedOutputStream(pa.PythonFile(content, "w"), _CHUNK)
    with buffered, pa.ipc.new_file(buffered, schema) as writer:
        for table in _with(first, tables):
            for batch in conform(table, schema).combine_chunks().to_batches():
                writer.write_batch(batch)
            del table
    failpoints.hit(failpoints.DURING_ROW_COPY)
    target.write(_CHECKSUM.pack(content.checksum))


def _is_whole(file: BinaryIO) -> bool:
    """Whether the content has its checksum. Read, not mapped: the pages would count as the process's memory."""
    left, checksum = os.fstat(file.fileno()).st_size - _CHECKSUM.size, 0
    while left > 0 and (chunk := file.read(min(left, _CHUNK))):
        checksum, left = zlib.crc32(chunk, checksum), left - len(chunk)
    return left == 0 and file.read() == _CHECKSUM.pack(checksum)


def _with(first: pa.Table, others: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    del first
    yield from others


def _name(file: str) -> str:
    return hashlib.blake2b(file.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
