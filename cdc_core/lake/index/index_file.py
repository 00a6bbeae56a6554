"""The index of one data file: its keys' 64-bit numbers (``fingerprints``), ascending, with the rows' positions.

    magic           8 bytes
    version         uint32
    header length   uint32
    checksum        uint32, CRC-32 of everything after it
    header          JSON: the data file that the index is of, and the lengths of what follows
    numbers         int64 or uint64 [N], ascending
    positions       uint32 [N], where in the data file the row of each number is; left out if that is 0, 1, 2, …
    values          Arrow IPC: the key's parts in the order of the numbers; only for hashes. A part that is null in
                    every row is left out.

Each section begins at a multiple of 64 bytes. All numbers are little-endian. A file is never changed: like the data
file that it describes, it is written once, under a temporary name. ``open_index`` believes it only if it is whole and
its header names the same data file, of the same table, with the same key.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from cdc_core import failpoints
from cdc_core.lake.index.fingerprints import Wanted, exact_numbers, hashes
from cdc_core.lake.rows.row_keys import KeyColumns

# A change of the layout, or of a hash in ``rows/key_hash``, needs another version: files of others are made anew.
VERSION = 1
_MAGIC = b"wal2keys"
_START = struct.Struct("<8sIII")
_ALIGNED = 64
_CHUNK = 1 << 20

Places = np.ndarray


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """What an index is of: a data file, as its log describes it, and the key's columns with their types in the lake."""

    table: str
    path: str
    size: int
    rows: int
    columns: tuple[str, ...]
    types: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the fields as the header contains them."""
        return {
            "table": self.table,
            "path": self.path,
            "size": self.size,
            "rows": self.rows,
            "columns": list(self.columns),
            "types": list(self.types),
        }


@dataclass(frozen=True, slots=True)
class FileIndex:
    """An index in memory, or mapped from its file. Shape: [N] each, ``numbers`` ascending.

    ``positions``: None if the rows are in this order in the data file. ``parts``: the key's values; None if the numbers
    are exact.
    """

    numbers: np.ndarray
    positions: np.ndarray | None
    parts: list[pa.Array] | None
    mapped: mmap.mmap | None = None

    @classmethod
    def of(cls, columns: KeyColumns, parts: Sequence[pa.Array]) -> FileIndex:
        """Make the index of rows in the data file's order, from the parts of their keys. Shape: array[N] each."""
        integers = exact_numbers(columns, parts)
        exact, numbers = integers is not None, hashes(parts) if integers is None else integers
        order = None if bool(np.all(numbers[1:] >= numbers[:-1])) else np.argsort(numbers)
        if order is not None:
            numbers = numbers[order]
        if exact:
            return cls(numbers, None if order is None else order.astype(np.uint32), None)
        values = list(parts) if order is None else [part.take(pa.array(order)) for part in parts]
        return cls(numbers, None if order is None else order.astype(np.uint32), values)

    def candidates(self, sought: Wanted) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows, by their place in this index, whose number is wanted, and the place of it in ``sought``."""
        needles = sought.exact[0] if self.parts is None else sought.hashed
        return _matches(self.numbers, needles)

    def places(self, rows: np.ndarray) -> Places:
        """Return the positions in the data file of rows of this index. Shape: int64[H] -> int64[H]."""
        return rows if self.positions is None else self.positions[rows].astype(np.int64)

    def release(self) -> None:
        """Take the pages out of the process's memory; the system's page cache still has them."""
        if self.mapped is not None:
            self.mapped.madvise(mmap.MADV_DONTNEED)

    @property
    def mapped_bytes(self) -> int:
        """The size of the file; 0 if the index is in memory only."""
        return 0 if self.mapped is None else len(self.mapped)


def _matches(numbers: np.ndarray, needles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return all pairs of places with equal values; both arrays ascend, ``needles`` without repetition."""
    none = np.zeros(0, dtype=np.int64)
    if not len(numbers) or not len(needles):
        return none, none
    begin = int(needles.searchsorted(numbers[0]))
    some = needles[begin : int(needles.searchsorted(numbers[-1], "right"))]
    if not len(some):
        return none, none
    if len(numbers) < len(some):
        at = np.minimum(some.searchsorted(numbers), len(some) - 1)
        rows = np.flatnonzero(some[at] == numbers)
        return rows, begin + at[rows]
    first = numbers.searchsorted(some)
    which = np.flatnonzero(numbers[first] == some)
    if not len(which):
        return none, none
    first = first[which]
    times = numbers.searchsorted(some[which], "right") - first
    rows = np.repeat(first - (np.cumsum(times) - times), times) + np.arange(int(times.sum()))
    return rows, begin + np.repeat(which, times)


def write_index(target: BinaryIO, index: FileIndex, source: IndexedFile) -> None:
    """Write an index to a new file that can be sought."""
    values = b"" if index.parts is None else _stored_parts(index.parts)
    sections: list[Any] = [index.numbers, b"" if index.positions is None else index.positions, values]
    sizes = [memoryview(section).nbytes for section in sections]
    header = {
        **source.as_json(),
        "exact": index.parts is None,
        "ordered": index.positions is None,
        "sizes": sizes,
        "parts": [] if index.parts is None else [part.null_count < len(part) for part in index.parts],
    }
    text = json.dumps(header).encode()
    length = _aligned(_START.size + len(text)) - _START.size
    text = text.ljust(length)
    target.write(_START.pack(_MAGIC, VERSION, length, 0))
    checksum = _written(target, text, 0)
    for section, size in zip(sections, sizes, strict=True):
        checksum = _written(target, section, checksum)
        checksum = _written(target, bytes(_aligned(size) - size), checksum)
    failpoints.hit(failpoints.DURING_INDEX)
    target.seek(0)
    target.write(_START.pack(_MAGIC, VERSION, length, checksum))


def open_index(path: Path, source: IndexedFile, parts: Sequence[pa.DataType]) -> FileIndex | None:
    """Map an index into memory; None if there is none, or it is damaged, incomplete, or not the one of ``source``.

    ``parts`` are the types of the key's parts.
    """
    try:
        with path.open("rb") as file:
            header = _checked_header(file, source)
            if header is None:
                return None
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
    at, ends = _aligned(_START.size + header["length"]), []
    for size in header["sizes"]:
        ends.append((at, size))
        at += _aligned(size)
    (numbers_at, _), (positions_at, _), (values_at, values_size) = ends
    count, exact = source.rows, bool(header["exact"])
    numbers = np.frombuffer(mapped, "<i8" if exact else "<u8", count, numbers_at)
    positions = None if header["ordered"] else np.frombuffer(mapped, "<u4", count, positions_at)
    if exact:
        return FileIndex(numbers, positions, None, mapped)
    data = pa.py_buffer(memoryview(mapped)[values_at : values_at + values_size])
    columns = iter(pa.ipc.open_file(data).get_batch(0).columns)
    values = [
        next(columns) if stored else pa.nulls(count, kind) for stored, kind in zip(header["parts"], parts, strict=True)
    ]
    return FileIndex(numbers, positions, values, mapped)


def _checked_header(file: BinaryIO, source: IndexedFile) -> dict[str, Any] | None:
    """Return the header if the file is whole and the index of ``source``; None otherwise."""
    start = file.read(_START.size)
    if len(start) < _START.size:
        return None
    magic, version, length, checksum = _START.unpack(start)
    if magic != _MAGIC or version != VERSION or length > os.fstat(file.fileno()).st_size:
        return None
    text = file.read(length)
    crc = zlib.crc32(text)
    # Read, not mapped: the pages of a check would count as the process's memory.
    while chunk := file.read(_CHUNK):
        crc = zlib.crc32(chunk, crc)
    if crc != checksum:
        return None
    header: dict[str, Any] = json.loads(text)
    identity = source.as_json()
    return {**header, "length": length} if {name: header.get(name) for name in identity} == identity else None


def _stored_parts(parts: Sequence[pa.Array]) -> memoryview:
    stored = [part for part in parts if part.null_count < len(part)]
    batch = pa.record_batch(stored, names=[str(number) for number in range(len(stored))]) if stored else None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, pa.schema([]) if batch is None else batch.schema) as writer:
        writer.write_batch(pa.record_batch([], names=[]) if batch is None else batch)
    return memoryview(sink.getvalue())


def _written(target: BinaryIO, data: Any, checksum: int) -> int:
    target.write(data)
    return zlib.crc32(data, checksum)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
