"""Moves rows of data files to a new file, in a commit that changes no data.

Another writer's commit may be made first and mark some of the moved rows as deleted, in the files that they come from.
The position of each in the new file is known, so they are marked there too, and the commit is tried again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import failpoints
from cdc_core.arrays import Ints
from cdc_core.errors import CommitConflictError
from cdc_core.lake.delta.data_file import DataFile, MarkedRows
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.rows.row_keys import KeyColumns

_TRIES = 8
# More rows are not sorted: in memory they would need as much again.
_SORTED_BYTES = 128 << 20
_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class MovedPart:
    """The rows of a file to be moved: all, or those at positions from ``start`` and before ``end``.

    Rows that are marked as deleted are not moved. A part of a file needs a table that allows such marks.
    """

    file: DataFile
    start: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class _Moved:
    """A part, and which rows of its file were not marked as deleted when it was read (None: all). Shape: bool[rows]"""

    part: MovedPart
    live: np.ndarray | None

    @property
    def rows(self) -> int:
        """The rows of the file, also deleted ones."""
        return self.part.file.rows if self.live is None else len(self.live)

    def places(self) -> Ints:
        """Return the positions of the moved rows in the file, in the order of the new file. Shape: int64[M]"""
        end = self.rows if self.part.end is None else self.part.end
        if self.live is None:
            return np.arange(self.part.start, end)
        return self.part.start + np.flatnonzero(self.live[self.part.start : end])


def move(table: DeltaTable, parts: Sequence[MovedPart], key: Sequence[str] = ()) -> list[DataFile] | None:
    """Move parts of different files; returns the new files, normally one.

    Their rows are in the order of ``key``, so that a reader finds one in few pages; in the parts' order without a key,
    or if they are many or cannot be ordered.

    None if another writer's commit removed one of the files, restored rows in it, or changed the columns: then nothing
    was changed.
    """
    schema = table.tracked_schema
    moved = [_Moved(part, table.live(part.file)) for part in parts]
    # A count that the log does not have is unknown; no file is divided by rows.
    every = sum(part.file.rows for part in parts) or 1 << 62
    batches, order = _ordered(_batches(table, moved), schema, key)
    made = table.write_stream(batches, schema, every, None)
    failpoints.hit(failpoints.DURING_COMPACTION)
    for _ in range(_TRIES):
        files = {file.path: file for file in table.files}
        if table.tracked_schema != schema or any(part.file.path not in files for part in parts):
            break
        now = [
            replace(moved_part, part=replace(moved_part.part, file=files[moved_part.part.file.path]))
            for moved_part in moved
        ]
        if any(_was_restored(table, moved_part) for moved_part in now):
            break
        try:
            table.commit(
                made,
                [moved_part.part.file for moved_part in now if moved_part.part.end is None],
                marked=[
                    *[
                        MarkedRows(moved_part.part.file, moved_part.places())
                        for moved_part in now
                        if moved_part.part.end is not None
                    ],
                    *_deleted_since(table, now, order, made),
                ],
                metadata={"upkeep": "compaction"},
                data_change=False,
            )
        except CommitConflictError:
            table.refresh()
            continue
        failpoints.hit(failpoints.AFTER_COMPACTION)
        return made
    table.discard(made)
    return None


def _batches(table: DeltaTable, moved: Sequence[_Moved]) -> Iterator[pa.RecordBatch]:
    for moved_part in moved:
        if moved_part.part.end is None:
            for rows in table.batches(moved_part.part.file, table.tracked_schema.names):
                yield from rows.to_batches()
        else:
            yield from table.read_at(moved_part.part.file, moved_part.places(), table.tracked_schema.names).to_batches()


def _ordered(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, key: Sequence[str]
) -> tuple[Iterable[pa.RecordBatch], np.ndarray | None]:
    """Return rows in the order of their keys, and where each of them was before; None if they were left in theirs.

    Shape: rows[M] -> rows[M], int64[M]
    """
    if not key or not {name.lower() for name in key} <= {name.lower() for name in schema.names}:
        return batches, None
    names = KeyColumns.of(key, schema).names
    if not all(_has_order(schema.field(name).type) for name in names):
        return batches, None
    buffered, octets = [], 0
    for batch in batches:
        buffered.append(batch)
        octets += batch.nbytes
        if octets > _SORTED_BYTES:
            return chain(buffered, batches), None
    if not buffered:
        return buffered, None
    rows = pa.Table.from_batches(buffered).combine_chunks()
    order = pc.sort_indices(rows.select(names), sort_keys=[(name, "ascending") for name in names])
    return rows.take(order).to_batches(_BATCH_ROWS), order.to_numpy().astype(np.int64)


def _has_order(kind: pa.DataType) -> bool:
    """Whether values have an order in which readers look for them."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_binary(kind)
    )


def _was_restored(table: DeltaTable, moved: _Moved) -> bool:
    """Whether rows that were marked as deleted no longer are, as after Delta's RESTORE."""
    if moved.live is None:
        return False
    now = table.live(moved.part.file)
    return now is None or bool((now & ~moved.live).any())


def _deleted_since(
    table: DeltaTable, moved: Sequence[_Moved], order: np.ndarray | None, made: Sequence[DataFile]
) -> Iterator[MarkedRows]:
    """Yield the rows of the new files that were marked in their former files after they had been read.

    ``moved`` has the files of the loaded version; ``order``: as ``_ordered`` returns it.
    """
    at, deleted = 0, [np.zeros(0, dtype=np.int64)]
    for moved_part in moved:
        places = moved_part.places()
        deleted.append(at + np.flatnonzero(~table.unmarked(moved_part.part.file, places)))
        at += len(places)
    gone, start = np.concatenate(deleted), 0
    if order is not None and len(gone):
        gone = np.flatnonzero(np.isin(order, gone))
    for file in made:
        mine = gone[(gone >= start) & (gone < start + file.rows)]
        if len(mine):
            yield MarkedRows(file, mine - start)
        start += file.rows
