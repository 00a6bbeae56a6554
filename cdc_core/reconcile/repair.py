"""Repairs rows that differ: their keys are read again as a chunk of an incremental snapshot, and written as one.

    keys ─▶ SELECT of their rows (snapshot V, WAL end R) ─▶ the lake table is merged past R ─▶ ChunkTask ─▶ one commit

The rule by which a chunk is exact beside a stream is that of ``lake/apply/chunk_rows``; a key that the SELECT does not
find is deleted, as the delete mode says. A comparison of the same keys afterwards shows the result of a repair.

The commit is fenced like every other: if a run commits first, the repair reads the keys again.
"""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from cdc_core.clock import now_us
from cdc_core.errors import NotComparableError, TransientError
from cdc_core.lake import (
    ChunkFile,
    ChunkOrder,
    ChunkOutcome,
    ChunkTask,
    LakeTable,
    Merge,
    ShownBySource,
    SliceTask,
    SnapshotInForce,
    Target,
    TargetSchema,
    between,
    key_texts,
)
from cdc_core.lake.compare.judge import touched_keys
from cdc_core.lake.rows.row_keys import KeyIndex
from cdc_core.lsn import last_begin
from cdc_core.postgres import ChunkConnection
from cdc_core.reconcile.read_plan import Reading, has_texts
from cdc_core.reconcile.slot_changes import SlotChanges
from cdc_core.reconcile.source_side import typed

_log = logging.getLogger(__name__)

_MOST_KEYS = 20_000
_POLL_SECONDS = 0.05
_WAITS = "changes of its row are not merged yet: run wal2lake run, then reconcile again"
# For tables whose rows cannot be selected by their keys: all rows are in memory then.
_MOST_SCANNED = 1_000_000
_HIDDEN_KEY = (
    "its key is masked, or of a type by which rows cannot be read again, and the table has more than "
    f"{_MOST_SCANNED:,} rows: run wal2lake snapshot with it"
)


@dataclass(frozen=True, slots=True)
class Repair:
    """Writes rows to lake tables. ``folder`` is for its files."""

    connection: ChunkConnection
    slices: SliceTask
    folder: Path
    slot: SlotChanges
    wait_seconds: float

    def write(self, target: Target, reading: Reading, keys: pa.Table, doubled: np.ndarray) -> dict[int, str]:
        """Read the rows of keys again and write them; returns the reasons by the numbers of keys that were not written.

        Shape: keys[K] with the columns of ``KeyColumns.read``, bool[K]. Raises CdcError.
        """
        if not has_texts(target.typer, target.compared) and _rows(target) > _MOST_SCANNED:
            return dict.fromkeys(range(keys.num_rows), _HIDDEN_KEY)
        left: dict[int, str] = {}
        for at in range(0, keys.num_rows, _MOST_KEYS):
            part = keys.slice(at, _MOST_KEYS)
            if doubled[at : at + _MOST_KEYS].any() and "__current" in target.lake.schema.names:
                # Two current versions are ended first: else one that equals the source's would remain with the other.
                again = part.filter(pa.array(doubled[at : at + _MOST_KEYS]))
                self._written(target, reading, again, ends=True)
            left |= {at + number: why for number, why in self._written(target, reading, part).items()}
        return left

    def _written(self, target: Target, reading: Reading, keys: pa.Table, ends: bool = False) -> dict[int, str]:
        deadline = time.monotonic() + self.wait_seconds
        while True:
            try:
                return self._attempt(target, reading, keys, ends)
            except TransientError as error:
                if time.monotonic() >= deadline:
                    raise
                _log.debug("Rows of %s are read again: %s", target.table.id, error)

    def _attempt(self, target: Target, reading: Reading, keys: pa.Table, ends: bool) -> dict[int, str]:
        key = target.compared.key
        assert key is not None
        bound = self.connection.bound()
        # Rows whose key is masked, or has no text, are selected among all rows.
        can_seek = has_texts(target.typer, target.compared)
        read = self.connection.read(*(reading.of_keys(key_texts(keys, key)) if can_seek else reading.ranges))
        reached = self.connection.wal_end()
        shown = ShownBySource.of(read.visible, reached, bound)
        merge = self._merge(target, reached)
        waits = self._waiting(target, shown, keys)
        rows = typed(target.typer, b"".join(read.rows), merge.to_lsn, now_us())
        index, _ = KeyIndex.of(key, keys)
        codes = index.match(target.compared.conformed(rows).select(key.read).combine_chunks())
        if ends:
            rows, codes = rows.slice(0, 0), codes[:0]
        rows = rows.filter(pa.array((codes >= 0) & ~waits[codes]))
        exists = np.zeros(keys.num_rows, dtype=bool)
        exists[codes[codes >= 0]] = True
        gone = keys.filter(pa.array(~exists & ~waits))
        if rows.num_rows or gone.num_rows:
            # A run may have merged more meanwhile: the later the position is read, the fewer commits are in the way.
            merge = self._merge(target, reached)
            own, others = self._file(target, rows), self._file(target, gone)
            chunk = ChunkFile(own, rows.num_rows, shown.visible, shown.floor, others)
            self._apply(ChunkOrder(merge, (chunk,), merge.to_lsn, int(reached)))
        return dict.fromkeys(np.flatnonzero(waits).tolist(), _WAITS)

    def _apply(self, order: ChunkOrder) -> None:
        outcome: ChunkOutcome = ChunkTask(self.slices)(order)
        if outcome.error is not None:
            raise outcome.error

    def _merge(self, target: Target, reached: int) -> Merge:
        """Return the table as it is merged now: past ``reached`` while a run streams, else as far as the last one got.

        Raises NotComparableError if the running stream does not get there in time.
        """
        deadline, table, scope = time.monotonic() + self.wait_seconds, target.table.id, self.slices.scope
        while True:
            confirmed, streams = self.slot.position()
            reached_by_table = LakeTable(self.slices.paths, scope, table).position()
            place, end = reached_by_table.place, reached_by_table.changelog
            has_backlog = end is not None and end.commit_lsn > place.merged
            passed = 0 if has_backlog else int(confirmed)
            if max(passed, place.merged) >= reached or not streams:
                break
            if time.monotonic() >= deadline:
                raise NotComparableError(
                    f"the running stream has not merged the changes up to {reached} within {self.wait_seconds:g} s"
                )
            time.sleep(_POLL_SECONDS)
        schema = TargetSchema(target.table, target.version.schema_version)
        snapshot = SnapshotInForce(place.merge_token, place.lsn)
        return Merge(schema, snapshot, target.table, max(last_begin(passed), place.merged))

    def _waiting(self, target: Target, shown: ShownBySource, keys: pa.Table) -> np.ndarray:
        """Return which keys have changes that the rows show and the lake table does not have. Shape: bool[K]"""
        slices, table = self.slices, target.table.id
        place = LakeTable(slices.paths, slices.scope, table).place()
        version = replace(target.version, place=place)
        waiting = self.slot.upto(shown.lsn)
        found = between(target.typer, target.changelog, slices.paths, slices.scope, shown, version, waiting)
        return touched_keys(found.behind, keys, target.compared)

    def _file(self, target: Target, rows: pa.Table) -> str:
        """Write rows to a file of this run; returns its path."""
        path = self.folder / f"repair-{uuid.uuid4()}.arrow"
        schema = rows.schema.with_metadata(self.slices.writer.owner.metadata(str(target.table.id)))
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            writer.write_table(rows.replace_schema_metadata(schema.metadata))
        return str(path)


def _rows(target: Target) -> int:
    return sum(target.lake.row_count(file) for file in target.lake.files)
