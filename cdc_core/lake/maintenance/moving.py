"""Moves rows of data files to a new file, in a commit that changes no data.

Another writer's commit may be made first and mark some of the moved rows as deleted, in the files that they come from.
The position of each in the new file is known, so they are marked there too, and the commit is tried again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from cdc_core import failpoints
from cdc_core.errors import CommitConflictError
from cdc_core.lake.delta.data_file import DataFile, MarkedRows
from cdc_core.lake.delta.table import DeltaTable

_TRIES = 8


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of a file to be moved: all, or those at positions from ``start`` and before ``end``.

    Rows that are marked as deleted are not moved. A part of a file needs a table that allows such marks.
    """

    file: DataFile
    start: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class _Moved:
    """A part, and which rows of its file were not marked as deleted when it was read (None: all). Shape: bool[rows]"""

    part: Part
    live: np.ndarray | None

    @property
    def rows(self) -> int:
        """The rows of the file, also deleted ones."""
        return self.part.file.rows if self.live is None else len(self.live)

    def places(self) -> np.ndarray:
        """Return the positions of the moved rows in the file, in the order of the new file. Shape: int64[M]"""
        end = self.rows if self.part.end is None else self.part.end
        if self.live is None:
            return np.arange(self.part.start, end)
        return self.part.start + np.flatnonzero(self.live[self.part.start : end])


def move(table: DeltaTable, parts: Sequence[Part]) -> list[DataFile] | None:
    """Move parts of different files; returns the new files, in which rows have the parts' order, normally one.

    None if another writer's commit removed one of the files, restored rows in it, or changed the columns: then nothing
    was changed.
    """
    schema = table.schema
    moved = [_Moved(part, table.live(part.file)) for part in parts]
    # A count that the log does not have is unknown; no file is divided by rows.
    every = sum(part.file.rows for part in parts) or 1 << 62
    made = table.write_stream(_batches(table, moved), schema, every, None)
    failpoints.hit(failpoints.DURING_COMPACTION)
    for _ in range(_TRIES):
        files = {file.path: file for file in table.files}
        if table.schema != schema or any(part.file.path not in files for part in parts):
            break
        now = [replace(each, part=replace(each.part, file=files[each.part.file.path])) for each in moved]
        if any(_was_restored(table, each) for each in now):
            break
        try:
            table.commit(
                made,
                [each.part.file for each in now if each.part.end is None],
                marked=[
                    *[MarkedRows(each.part.file, each.places()) for each in now if each.part.end is not None],
                    *_deleted_since(table, now, made),
                ],
                metadata={"upkeep": "compaction"},
                data_change=False,
            )
        except CommitConflictError:
            table.refresh()
            continue
        return made
    table.discard(made)
    return None


def _batches(table: DeltaTable, moved: Sequence[_Moved]) -> Iterator[pa.RecordBatch]:
    for each in moved:
        if each.part.end is None:
            for rows in table.batches(each.part.file):
                yield from rows.to_batches()
        else:
            yield from table.read_at(each.part.file, each.places()).to_batches()


def _was_restored(table: DeltaTable, moved: _Moved) -> bool:
    """Whether rows that were marked as deleted no longer are, as after Delta's RESTORE."""
    if moved.live is None:
        return False
    now = table.live(moved.part.file)
    return now is None or bool((now & ~moved.live).any())


def _deleted_since(table: DeltaTable, moved: Sequence[_Moved], made: Sequence[DataFile]) -> Iterator[MarkedRows]:
    """Yield the rows of the new files that were marked in their former files after they had been read.

    ``moved`` has the files of the loaded version.
    """
    at, found = 0, [np.zeros(0, dtype=np.int64)]
    for each in moved:
        places = each.places()
        found.append(at + np.flatnonzero(~table.unmarked(each.part.file, places)))
        at += len(places)
    gone, start = np.concatenate(found), 0
    for file in made:
        mine = gone[(gone >= start) & (gone < start + file.rows)]
        if len(mine):
            yield MarkedRows(file, mine - start)
        start += file.rows
