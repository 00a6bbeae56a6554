"""Divides the change rows of a large slice into parts that fit in memory, each complete for its keys; on local disk.

    rows in stream order ─▶ a file per part, by the hash of the row's key ─▶ one part at a time

An update that changed the key and did not send all values takes them from the row at its former key, so the two keys
must be in one part: ``link`` collects the pairs, and the parts are then written again. A part that is too large is
divided by further bits of the hash. The rows of a key keep their order; those of keys that were connected later are not
in stream order within their part.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Bools
from cdc_core.lake.rows.key_hash import Hashes, mixed
from cdc_core.lake.rows.run_files import opening, writing

_BITS, _LEVELS = 5, 4
_PARTS = 1 << _BITS
_LARGE_ROW = 1 << 20
_HASH = "__hash".ljust(64, "_")  # longer than a column's name can be


@dataclass(frozen=True, slots=True)
class KeyShare:
    """The keys that one of ``count`` tasks works on, by their hashes; the tasks are numbered from 0."""

    number: int = 0
    count: int = 1

    def has(self, hashes: Hashes) -> Bools:
        """Return which keys belong to the share. Shape: uint64[N] -> bool[N]"""
        # The low bits: the files of a share are chosen by the high ones.
        return np.asarray(mixed(hashes) % np.uint64(self.count) == np.uint64(self.number))


@dataclass(frozen=True, slots=True)
class Part:
    """A part of ``octets`` bytes in memory. ``read`` yields its rows some megabytes at a time, in their order.

    It is larger than what was asked for (``is_large``) if one key, or connected keys, have so many rows.
    """

    octets: int
    is_large: bool
    read: Callable[[], Iterator[pa.Table]]

    @property
    def rows(self) -> pa.Table:
        """All rows."""
        return pa.concat_tables(list(self.read()))


class Buckets:
    """Rows of a share in files of ``folder``, of at most about ``most_bytes`` in memory each. For one thread.

    Raises LostFolderError if a file with rows was removed meanwhile: without them the slice would be merged in part.
    """

    def __init__(self, folder: Path, most_bytes: int, share: KeyShare = KeyShare()) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._share = share
        self._links: list[np.ndarray] = []
        self._groups = _Groups.none()
        self._files = _Files(folder / "0", most_bytes, self._groups, share, 0)

    @property
    def octets(self) -> int:
        """Bytes of all rows in memory."""
        return self._files.octets

    def add(self, rows: pa.Table, hashes: Hashes) -> None:
        """Add rows, each with the hash of its key; those of other shares are left out. Shape: table[N], uint64[N]"""
        self._files.add(rows, hashes)

    def connect(self) -> bool:
        """Divide the rows again by the pairs so far; returns whether rows that were left out may now be in the share.

        If so, all rows are to be added again (``add_connected``).
        """
        if not self._links:
            return False
        self._files.finish()
        self._groups, self._links = _Groups.of(np.concatenate(self._links)), []
        again = _Files(self._folder / "linked", self._most_bytes, self._groups, self._share, 0)
        self._files.move_to(again)
        self._files = again
        return self._share.count > 1

    def add_connected(self, rows: pa.Table, hashes: Hashes) -> None:
        """Add the rows of other shares' keys that are connected with keys of this share. Shape: table[N], uint64[N]"""
        came = ~self._share.has(hashes) & self._share.has(self._groups.heads(hashes))
        if came.any():
            self._files.add(rows.filter(pa.array(came)), hashes[came])

    def link(self, left: Hashes, right: Hashes) -> None:
        """Put the rows of these pairs of keys into one part. Shape: uint64[P], uint64[P]"""
        if len(left):
            self._links.append(np.stack([left, right], axis=1))

    def are_connected(self, hashes: Hashes) -> Bools:
        """Return which keys are connected with others. Shape: uint64[N] -> bool[N]"""
        return self._groups.has(hashes)

    def parts(self, most_bytes: int | None = None) -> Iterator[Part]:
        """Yield the parts that have rows, small ones together; a part is read before the next one is requested.

        They have about ``most_bytes`` at most (None: as the files).
        """
        self.connect()
        self._files.finish()
        most_bytes = self._most_bytes if most_bytes is None else most_bytes
        together, octets = list[pa.Table](), 0
        for part in self._files.parts(most_bytes):
            if together and octets + part.octets > most_bytes:
                made, together = Part(octets, False, partial(iter, together)), []
                octets = 0
                yield made
                del made
            if part.is_large:
                yield part
                continue
            together.append(part.rows)
            octets += part.octets
        if together:
            yield Part(octets, False, partial(iter, together))

    def close(self) -> None:
        """Remove all files."""
        self._files.finish()
        shutil.rmtree(self._folder, ignore_errors=True)


class _Groups:
    """Connected keys: ``nodes`` are their hashes in order, ``heads`` one hash for all of a group. Shape: uint64[K]"""

    def __init__(self, nodes: np.ndarray, heads: np.ndarray) -> None:
        self._nodes, self._heads = nodes, heads

    @classmethod
    def none(cls) -> _Groups:
        return cls(np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.uint64))

    @classmethod
    def of(cls, pairs: np.ndarray) -> _Groups:
        """Find the connected keys of pairs. Shape: uint64[P, 2]"""
        nodes, at = np.unique(pairs.ravel(), return_inverse=True)
        left, right = at.reshape(-1, 2).T
        label = np.arange(len(nodes))
        while True:
            least = np.minimum(label[left], label[right])
            merged = label.copy()
            # The former labels get the smaller one as well, so that a chain of n keys takes about log n passes.
            for side in (left, right):
                np.minimum.at(merged, label[side], least)
                np.minimum.at(merged, side, least)
            merged = merged[merged]
            if (merged == label).all():
                return cls(nodes, nodes[label])
            label = merged

    def has(self, hashes: Hashes) -> np.ndarray:
        return np.isin(hashes, self._nodes)

    def heads(self, hashes: Hashes) -> Hashes:
        """Return the hash of each key's group, for a key that is not connected its own."""
        if not len(self._nodes):
            return hashes
        at = np.minimum(np.searchsorted(self._nodes, hashes), len(self._nodes) - 1)
        return np.where(self._nodes[at] == hashes, self._heads[at], hashes)


class _Files:
    """The files of one level: a bucket is chosen by ``_BITS`` bits of the hash."""

    def __init__(self, folder: Path, most_bytes: int, groups: _Groups, share: KeyShare, level: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._most_bytes, self._level = folder, most_bytes, level
        self._groups, self._share = groups, share
        self._held: list[list[pa.Table]] = [[] for _ in range(_PARTS)]
        self._held_bytes = 0
        self._bytes = [0] * _PARTS
        self._writers: dict[int, pa.RecordBatchWriter] = {}

    @property
    def octets(self) -> int:
        return sum(self._bytes)

    def add(self, rows: pa.Table, hashes: Hashes) -> None:
        heads = self._groups.heads(hashes)
        mine = self._share.has(heads)
        if not mine.all():
            rows, hashes, heads = rows.filter(pa.array(mine)), hashes[mine], heads[mine]
        if not len(hashes):
            return
        shift = np.uint64(64 - _BITS * (self._level + 1))
        numbers = (mixed(heads) >> shift).astype(np.int64) & (_PARTS - 1)
        order = np.argsort(numbers, kind="stable")
        laid = rows.append_column(_HASH, pa.array(hashes))
        if (np.diff(order) != 1).any():  # a single large row is not copied
            laid = laid.take(pa.array(order))
        ends = np.searchsorted(numbers[order], np.arange(_PARTS + 1))
        size = laid.nbytes
        for number in np.unique(numbers).tolist():
            low, high = int(ends[number]), int(ends[number + 1])
            self._held[number].append(laid.slice(low, high - low))
            self._bytes[number] += size * (high - low) // max(1, rows.num_rows)
        self._held_bytes += size
        if self._held_bytes >= self._most_bytes // 2:
            self._flush()

    def finish(self) -> None:
        """Write buffered rows, and close the files."""
        self._flush()
        for writer in self._writers.values():
            writer.close()
        self._writers = {}

    def move_to(self, other: _Files) -> None:
        """Add all rows to other files; those of this object are removed."""
        for number in range(_PARTS):
            for batch in self._read(number):
                rows = pa.Table.from_batches([batch])
                other.add(rows.drop_columns([_HASH]), rows.column(_HASH).to_numpy())
            self._path(number).unlink(missing_ok=True)

    def parts(self, most_bytes: int) -> Iterator[Part]:
        """Yield the parts, each of which is read before the next one is requested."""
        for number in range(_PARTS):
            octets = self._bytes[number]
            if not octets:
                continue
            if octets > most_bytes and self._level + 1 < _LEVELS:
                yield from self._divided(number).parts(most_bytes)
            else:
                yield Part(octets, octets > most_bytes, partial(self._rows, number))
            self._path(number).unlink(missing_ok=True)

    def _rows(self, number: int) -> Iterator[pa.Table]:
        for batch in self._read(number):
            yield pa.Table.from_batches([batch]).drop_columns([_HASH])

    def _divided(self, number: int) -> _Files:
        finer = _Files(self._folder / str(number), self._most_bytes, self._groups, self._share, self._level + 1)
        for batch in self._read(number):
            rows = pa.Table.from_batches([batch])
            finer.add(rows.drop_columns([_HASH]), rows.column(_HASH).to_numpy())
        finer.finish()
        return finer

    def _flush(self) -> None:
        for number, tables in enumerate(self._held):
            if tables:
                rows = pa.concat_tables(tables)
                if number not in self._writers:
                    # Compressing needs the size of a value again, and large values seldom become much smaller.
                    is_large = rows.nbytes > _LARGE_ROW * rows.num_rows
                    options = pa.ipc.IpcWriteOptions(compression=None if is_large else "lz4")
                    path = self._path(number)
                    with writing(path):
                        self._writers[number] = pa.ipc.new_stream(str(path), rows.schema, options=options)
                self._writers[number].write_table(rows.combine_chunks())
        self._held = [[] for _ in range(_PARTS)]
        self._held_bytes = 0

    def _read(self, number: int) -> Iterator[pa.RecordBatch]:
        if not self._bytes[number]:
            return
        path = self._path(number)
        with opening(path):
            source = pa.OSFile(str(path), "rb")
        with source, pa.ipc.open_stream(source) as reader:
            yield from reader

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.arrow"
