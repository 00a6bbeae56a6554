"""The batch that is being filled: rows that the changelogs lack go to its files, requests in the signal table to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cdc_core.engine.reading.batch import Batch, rows_in_changelog
from cdc_core.engine.reading.segment_parts import SegmentPart
from cdc_core.engine.reading.spool_writer import SpoolWriter
from cdc_core.lake import ChangelogPosition, Spool, StreamTable, TypingPlan
from cdc_core.schema import Relation, TableId, TableSchema
from cdc_core.snapshot import signal_rows


@dataclass(frozen=True, slots=True)
class SignalTable:
    """The signal table. ``is_kept``: it is also captured like any other table."""

    table: TableId
    is_kept: bool


class Added(NamedTuple):
    """What a part brought: ``rows`` and their ``bytes``, whether there was any row, signal or message, whether the
    batch was empty before and is not any more.
    """

    rows: int
    bytes: int
    is_change: bool
    is_first: bool


class BatchBuilder:
    """Fills one batch after another. ``positions`` are those of the changelogs: what they have is left out."""

    def __init__(
        self,
        spool: Spool,
        plan: TypingPlan,
        positions: Mapping[TableId, ChangelogPosition],
        signals: SignalTable | None = None,
    ) -> None:
        self._writer, self._positions, self._signals = SpoolWriter(spool, plan), dict(positions), signals
        self.batch = Batch(1)

    @property
    def has_content(self) -> bool:
        """Whether there is anything to hand over, if only the end of a transaction."""
        batch = self.batch
        return not batch.is_empty or batch.complete_lsn is not None or batch.open_lsn is not None

    def add(self, part: SegmentPart) -> Added:
        """Add the rows, signals and ends of transactions of a part. Raises StorageError."""
        batch, was_empty = self.batch, not self.has_content
        rows, size, signals = batch.rows, batch.bytes, len(batch.signals)
        self._add(part)
        # Not a transaction's begin and end: a server may send those of tables that are not captured.
        is_change = (batch.rows, len(batch.signals)) != (rows, signals) or StreamTable.MESSAGES in part.own_rows
        return Added(batch.rows - rows, batch.bytes - size, is_change, was_empty and self.has_content)

    def take(self) -> Batch:
        """Return the batch, whose files are complete, and begin the next one."""
        self._writer.flush()
        batch, self.batch = self.batch, Batch(self.batch.number + 1)
        return batch

    def _add(self, part: SegmentPart) -> None:
        batch = self.batch
        pieces: list[tuple[TableSchema, pa.RecordBatch, Relation | None]]
        pieces = [(run.table, run.raw, run.relation) for run in part.runs]
        pieces += [(table, cut.row(), None) for cut in part.truncates for table in cut.tables]
        # In stream order, so that a table's versions are in the order in which they were in force.
        if self._signals is not None:
            batch.signals += signal_rows(part.runs, self._signals.table)
            if not self._signals.is_kept:
                pieces = [piece for piece in pieces if piece[0].id != self._signals.table]
        for table, raw, relation in sorted(pieces, key=lambda piece: piece[1].column("seq")[0].as_py()):
            self._add_rows(table, raw, relation)
        for own, rows in part.own_rows.items():
            batch.own_rows.setdefault(own, []).append(rows)
            batch.bytes += rows.nbytes
        if part.last_commit is not None:
            last = part.last_commit
            batch.complete_lsn, batch.confirm_lsn = last.lsn, last.end_lsn
            batch.last_xid, batch.last_ts_us, batch.last_commit_ts_us = last.xid, last.ts_us, last.ts_us
        batch.open_lsn = part.open_lsn

    def _add_rows(self, table: TableSchema, raw: pa.RecordBatch, relation: Relation | None) -> None:
        known = rows_in_changelog(self._positions.get(table.id, ChangelogPosition(0)), raw)
        if known is not None:
            raw = raw.filter(pa.array(~known))
        if raw.num_rows == 0:
            return
        files, size = self.batch.files_of(table), raw.nbytes
        files.note(raw, relation is not None and _only_inserts(raw))
        if relation is None:
            self._writer.add_truncates(files, raw)
        else:
            self._writer.add(files, relation, raw, size)
        self.batch.rows += raw.num_rows
        self.batch.bytes += size


def _only_inserts(raw: pa.RecordBatch) -> bool:
    """Whether every message is an Insert, determined by its first byte."""
    payload = raw.column("payload")
    octets = np.frombuffer(payload.buffers()[2], dtype=np.uint8)
    wide = pa.types.is_large_binary(payload.type)
    offsets = np.frombuffer(payload.buffers()[1], dtype=np.int64 if wide else np.int32)
    starts = offsets[payload.offset : payload.offset + len(payload)]
    return bool((octets[starts] == ord("I")).all())
