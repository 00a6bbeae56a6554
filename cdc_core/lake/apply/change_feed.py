"""Delta's change data feed: the rows that a commit inserts, updates and deletes, in separate files.

Readers of a feed take these files for the commit's changes, and not the data files, of which a rewritten one has the
rows that did not change as well. What changed follows from the rows that the commit takes away and from those that it
adds: rows that are equal in every column stay, and of the others those of one key are a row before and after an update.
In a history table that key is the version of a row: to end it is an update.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from cdc_core.lake.apply.paired_parts import PairedParts
from cdc_core.lake.delete_columns import POSITION, mode_of
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.data_file import DataFile, MarkedRows
from cdc_core.lake.delta.file_columns import CHANGE_TYPE
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.rows.codes import Tuples
from cdc_core.lake.rows.images import column
from cdc_core.lake.rows.key_hash import row_hashes
from cdc_core.lake.rows.row_keys import KeyColumns

_DELETE, _BEFORE, _AFTER, _INSERT = "delete", "update_preimage", "update_postimage", "insert"
_READ_BYTES = 8 << 20


def change_files(
    lake: DeltaTable,
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
    marked: Sequence[MarkedRows],
    key: Sequence[str],
) -> list[DataFile]:
    """Write the changes of a commit, or of a part of one with all rows of some keys, to files.

    ``added``, ``removed`` and ``marked`` as for ``DeltaTable.commit``. Without a key an update is a delete and an
    insert. None if the table has no feed; a commit that only adds rows needs none.
    """
    if not lake.definition.feeds_changes:
        return []
    identity, files = _RowIdentity.of(lake.schema, key), list[DataFile]()
    with tempfile.TemporaryDirectory(prefix="wal2lake-") as folder:
        parts = PairedParts(Path(folder), lake.schema)
        for is_new, tables in ((False, _old_rows(lake, removed, marked)), (True, _rows(lake, added))):
            for rows in tables:
                parts.add(rows, row_hashes(identity.columns(rows)), is_new=is_new)
        for old, new in parts:
            rows = _changes(old, new, identity)
            if rows.num_rows:
                files.append(lake.write_changes(rows))
    return files


@dataclass(frozen=True, slots=True)
class _RowIdentity:
    """What a row is identified by. ``key``: None if by all of its values."""

    key: KeyColumns | None
    more: tuple[str, ...]

    @classmethod
    def of(cls, schema: pa.Schema, key: Sequence[str]) -> _RowIdentity:
        if not key:
            return cls(None, tuple(schema.names))
        return cls(KeyColumns.of(key, schema), POSITION[:2] if mode_of(schema.names) is DeleteMode.HISTORY else ())

    def columns(self, rows: pa.Table) -> list[pa.Array]:
        """Return the values by which rows are identified."""
        own = [] if self.key is None else list(self.key.parts(rows))
        return own + [column(rows, name) for name in self.more]


def _old_rows(lake: DeltaTable, removed: Sequence[DataFile], marked: Sequence[MarkedRows]) -> Iterator[pa.Table]:
    yield from _rows(lake, removed)
    for marks in marked:
        rows = max(1, _READ_BYTES * lake.row_count(marks.file) // max(1, lake.bytes_in_memory(marks.file)))
        for start in range(0, len(marks.places), rows):
            yield lake.read_at(marks.file, marks.places[start : start + rows])


def _rows(lake: DeltaTable, files: Sequence[DataFile]) -> Iterator[pa.Table]:
    return (rows for file in files for rows in lake.batches(file))


def _changes(old: pa.Table, new: pa.Table, identity: _RowIdentity) -> pa.Table:
    """Return the changes from old rows to new ones. Shape: old[O], new[N] -> rows[C] with their kinds of change"""
    stays = _matched(old, new, lambda rows: [column(rows, name) for name in rows.schema.names], exact=True)
    old, new = (rows.filter(pa.array(~mask)) for rows, mask in zip((old, new), stays, strict=True))
    is_before, is_after = np.zeros(old.num_rows, dtype=bool), np.zeros(new.num_rows, dtype=bool)
    if identity.key is not None:
        is_before, is_after = _matched(old, new, identity.columns, exact=False)
    kinds = [*np.where(is_before, _BEFORE, _DELETE), *np.where(is_after, _AFTER, _INSERT)]
    return pa.concat_tables([old, new]).append_column(CHANGE_TYPE, pa.array(kinds, pa.string()))


def _matched(
    old: pa.Table, new: pa.Table, values: Callable[[pa.Table], list[pa.Array]], *, exact: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows have an equal one on the other side, each another one. Shape: bool[O], bool[N]"""
    rows = pa.concat_tables([old, new])
    _, codes = Tuples.number(values(rows), exact)
    mine, theirs = codes[: old.num_rows], codes[old.num_rows :]
    count = int(codes.max(initial=-1)) + 1
    return _repeats(mine) < np.bincount(theirs, minlength=count)[mine], _repeats(theirs) < np.bincount(
        mine, minlength=count
    )[theirs]


def _repeats(codes: np.ndarray) -> np.ndarray:
    """Return how often each number is at earlier places. Shape: int64[N] -> int64[N]"""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    repeats = np.empty(len(codes), dtype=np.int64)
    repeats[order] = np.arange(len(codes)) - np.searchsorted(ordered, ordered)
    return repeats
