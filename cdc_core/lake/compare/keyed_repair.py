"""Repairs rows by their keys: reads them again and writes them with the changes that they do not show.

    keys ─▶ the source's rows under a snapshot of their own ─▶ as a chunk of an incremental snapshot ─▶ one commit

The reasons why a row that is written so is not older than one that is there are those of ``lake/apply/chunk_rows``; a
key that the SELECT does not find is deleted, as the delete mode says. A comparison of the same keys afterwards shows
the result of a repair.

The commit is fenced like every other: if a run commits first, the repair reads the keys again.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Bools
from cdc_core.clock import now_us
from cdc_core.errors import NotComparableError, TransientError
from cdc_core.lake.chunks.chunk_file import ChunkFile
from cdc_core.lake.chunks.task import ChunkOrder, ChunkOutcome, ChunkTask
from cdc_core.lake.compare.between import ChangesInSlot, ShownBySource, between
from cdc_core.lake.compare.judge import DifferentKeys, touched_keys
from cdc_core.lake.compare.key_texts import key_texts
from cdc_core.lake.compare.rows import KeyedColumns
from cdc_core.lake.compare.source_side import typed
from cdc_core.lake.compare.target import Target
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.positions import changelog_position, lake_position
from cdc_core.lake.rows.row_keys import KeyIndex
from cdc_core.lake.schema.target_schema import TargetSchema
from cdc_core.lake.slice.order import Merge, SnapshotInForce
from cdc_core.lake.slice.task import SliceTask
from cdc_core.lsn import Lsn, last_begin
from cdc_core.schema import Key

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


class SourceRows(Protocol):
    """The source's rows of a table as they are now, and the state of the slot. Raises SourceError or TransientError."""

    def read(self, keys: Sequence[Key] | None) -> tuple[bytes, ShownBySource]:
        """Return the rows with some keys, None for all, as lines of COPY text, and what their snapshot shows."""

    def waiting(self, lsn: Lsn) -> ChangesInSlot:
        """Return the changes up to an LSN that the changelogs may lack."""

    def stream(self) -> tuple[Lsn, bool]:
        """Return the LSN up to which the changelogs have every change, and whether a run streams."""


@dataclass(frozen=True, slots=True)
class KeyedRepair:
    """Writes rows to lake tables. ``folder`` is for its files; a conflict is retried for ``wait_seconds``."""

    slices: SliceTask
    folder: Path
    wait_seconds: float

    def write(self, target: Target, rows: SourceRows, different: DifferentKeys) -> dict[Key, str]:
        """Read the rows of keys that differ again and write them; returns the keys that were not, with the reasons.

        Raises CdcError.
        """
        left = self._left(target, rows, different)
        texts = key_texts(different.keys.take(pa.array(list(left), pa.int64())), different.compared.key)
        return dict(zip(texts, left.values(), strict=True))

    def _left(self, target: Target, rows: SourceRows, different: DifferentKeys) -> dict[int, str]:
        """Return the reasons by the numbers of keys that were not written."""
        compared, keys, doubled = different.compared, different.keys, different.doubled
        if not target.has_key_texts and target.row_count > _MOST_SCANNED:
            return dict.fromkeys(range(keys.num_rows), _HIDDEN_KEY)
        left: dict[int, str] = {}
        for at in range(0, keys.num_rows, _MOST_KEYS):
            part = keys.slice(at, _MOST_KEYS)
            if doubled[at : at + _MOST_KEYS].any() and "__current" in target.lake.schema.names:
                # Two current versions are ended first: else one that equals the source's would remain with the other.
                again = part.filter(pa.array(doubled[at : at + _MOST_KEYS]))
                self._written(target, compared, rows, again, ends=True)
            left |= {at + number: why for number, why in self._written(target, compared, rows, part).items()}
        return left

    def _written(
        self, target: Target, compared: KeyedColumns, rows: SourceRows, keys: pa.Table, ends: bool = False
    ) -> dict[int, str]:
        deadline = time.monotonic() + self.wait_seconds
        while True:
            try:
                return self._attempt(target, compared, rows, keys, ends)
            except TransientError as error:
                if time.monotonic() >= deadline:
                    raise
                _log.debug("Rows of %s are read again: %s", target.table.id, error)

    def _attempt(
        self, target: Target, compared: KeyedColumns, source: SourceRows, keys: pa.Table, ends: bool
    ) -> dict[int, str]:
        key = compared.key
        # Rows whose key is masked, or has no text, are selected among all rows.
        lines, shown = source.read(key_texts(keys, key) if target.has_key_texts else None)
        reached = int(shown.lsn)
        merge = self._merge(target, source, reached)
        waits = self._waiting(target, compared, source, shown, keys)
        rows = typed(target.typer, lines, merge.to_lsn, now_us())
        index, _ = KeyIndex.of(key, keys)
        codes = index.match(compared.keys_of(compared.conformed(rows)))
        if ends:
            rows, codes = rows.slice(0, 0), codes[:0]
        rows = rows.filter(pa.array((codes >= 0) & ~waits[codes]))
        exists = np.zeros(keys.num_rows, dtype=bool)
        exists[codes[codes >= 0]] = True
        gone = keys.filter(pa.array(~exists & ~waits))
        if rows.num_rows or gone.num_rows:
            # A run may have merged more meanwhile: the later the position is read, the fewer commits are in the way.
            merge = self._merge(target, source, reached)
            own, others = self._file(target, rows), self._file(target, gone)
            chunk = ChunkFile(own, rows.num_rows, shown.visible, shown.floor, others)
            self._apply(ChunkOrder(merge, (chunk,), merge.to_lsn, reached))
        return dict.fromkeys(np.flatnonzero(waits).tolist(), _WAITS)

    def _apply(self, order: ChunkOrder) -> None:
        outcome: ChunkOutcome = ChunkTask(self.slices)(order)
        if outcome.error is not None:
            raise outcome.error

    def _merge(self, target: Target, source: SourceRows, reached: int) -> Merge:
        """Return the table as it is merged now: past ``reached`` while a run streams, else as far as the last one got.

        Raises NotComparableError if the running stream does not get there in time.
        """
        deadline, table, slices = time.monotonic() + self.wait_seconds, target.table.id, self.slices
        while True:
            confirmed, streams = source.stream()
            end = changelog_position(DeltaTable.open(slices.paths.changelog(table)), slices.scope, table)
            place = lake_position(DeltaTable.open(slices.paths.lake(table)), slices.scope, table)
            has_backlog = end is not None and end.commit_lsn > place.merged
            passed = 0 if has_backlog else int(confirmed)
            if max(passed, place.merged) >= reached or not streams:
                break
            if time.monotonic() >= deadline:
                raise NotComparableError(
                    f"the running stream has not merged the changes up to {Lsn(reached)} within {self.wait_seconds:g} s"
                )
            time.sleep(_POLL_SECONDS)
        schema = TargetSchema(target.table, target.version.schema_version)
        snapshot = SnapshotInForce(place.merge_token, place.lsn)
        return Merge(schema, snapshot, target.table, max(last_begin(passed), place.merged))

    def _waiting(
        self, target: Target, compared: KeyedColumns, source: SourceRows, shown: ShownBySource, keys: pa.Table
    ) -> Bools:
        """Return which keys have changes that the rows show and the lake table does not have. Shape: bool[K]"""
        paths, scope, table = self.slices.paths, self.slices.scope, target.table.id
        place = lake_position(DeltaTable.open(paths.lake(table)), scope, table)
        version, waiting = replace(target.version, place=place), source.waiting(shown.lsn)
        changes = between(target.typer, target.changelog, paths, scope, shown, version, waiting)
        return touched_keys(changes.behind, keys, compared)

    def _file(self, target: Target, rows: pa.Table) -> str:
        """Write rows to a file of this run; returns its path."""
        path = self.folder / f"repair-{uuid.uuid4()}.arrow"
        schema = rows.schema.with_metadata(self.slices.writer.owner.metadata(str(target.table.id)))
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            writer.write_table(rows.replace_schema_metadata(schema.metadata))
        return str(path)
