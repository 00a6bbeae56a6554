"""Signals to ``wal2lake envelopes``, and the snapshot rows that they insert into the stream's records.

Signals of the source table are processed at their position in the stream; those of a file or of this process between
two segments, while no transaction is open. ``at_commit`` is the progress at the segment's last Commit: stored with that
position, it lets the next run after a kill continue without losing a signal and without losing or duplicating a row.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from cdc_core import clock
from cdc_core.decode import SortedSegment
from cdc_core.events.envelope.record import RECORDS, in_order
from cdc_core.events.envelope.row import rows_of
from cdc_core.events.envelope.table_events import EventSnapshot, TableEvents
from cdc_core.schema import TableSchema
from cdc_core.snapshot import (
    ChunkWindow,
    IncrementalSnapshots,
    Progress,
    SignalProcessor,
    SignalRow,
    columns_of,
    signal_rows,
)

_END = np.iinfo(np.int64).max
# Rows of a chunk are ordered before the record of the mark that closes its window, or after a Commit's.
_BEFORE, _BEHIND = -1, 1 << 30


class EnvelopeSignals:
    """The signals of one run. ``processor`` processes them by changing ``snapshots``.

    ``build`` creates the events of a table whose rows a query reads, and ``included`` returns the columns of its rows.
    For one thread.
    """

    def __init__(
        self,
        snapshots: IncrementalSnapshots,
        processor: SignalProcessor,
        build: Callable[[TableSchema], TableEvents],
        included: Callable[[TableSchema], tuple[str, ...]],
    ) -> None:
        self.snapshots = snapshots
        self._processor = processor
        self._table = processor.table
        self._build = build
        self._included = included
        self._position = "0/0"
        self.at_commit = snapshots.progress

    @property
    def progress(self) -> Progress:
        """The state from which a next run would continue if it were stored now."""
        return self.snapshots.progress

    def interleave(self, segment: SortedSegment, records: pa.Table) -> pa.Table:
        """Insert the rows of a chunk whose position is in this segment. Processes the segment's signals."""
        marks = segment.transactions
        kinds, seqs, xids = (marks.column(name).to_numpy() for name in ("kind", "seq", "xid"))
        commits = kinds == ord("C")
        self.snapshots.streamed.add(xids[commits])
        last_commit = int(seqs[commits][-1]) if commits.any() else -1
        rows = [] if self._table is None else signal_rows(segment.runs, self._table)
        opened = self._opened(rows)
        made = self._walk(segment, [row for row in rows if row.seq <= last_commit], opened)
        made += self._without_marks(segment, last_commit)
        if last_commit >= 0:
            self.at_commit = self.progress
        made += self._walk(segment, [row for row in rows if row.seq > last_commit], opened)
        window = self.snapshots.window
        if window is not None:
            window.pass_over(segment, opened, _END)
            window.is_open |= opened is not None
        return in_order([records, *made]) if made else records

    def blocking_done(self) -> None:
        """Record that the tables of blocking snapshots were read."""
        self.snapshots.progress = self.progress.without_blocking()

    def done(self) -> None:
        """Record that ``progress``, with every signal received so far, is stored."""
        self._processor.done()

    def between(self, position: str, is_silent: bool) -> None:
        """Process signals of the other channels, and read a chunk that is due; no transaction is open.

        ``is_silent``: no change was received just now.
        """
        self._position = position
        self._processor.ask(position)
        self.snapshots.next_chunk(is_silent)

    def idle(self, wal_end: int) -> pa.Table:
        """Return the rows of a chunk without marks, once the server has sent its WAL that far without changes."""
        if self.snapshots.window is None or wal_end < self.snapshots.reached:
            return RECORDS.empty_table()
        if self._has_marks:
            self.snapshots.lose_marks()
            return RECORDS.empty_table()
        return self._inserted(0, _BEHIND, int(self.snapshots.reached), int(self.snapshots.reached))

    @property
    def _has_marks(self) -> bool:
        return self.snapshots.marks.table is not None

    def _walk(self, found: SortedSegment, rows: list[SignalRow], opened: int | None) -> list[pa.Table]:
        made = []
        for row in rows:
            window = self.snapshots.window
            if window is not None and self._closes(window, row):
                window.pass_over(found, opened, row.seq)
                made.append(self._inserted(row.seq, _BEFORE, row.lsn, row.prior_end_lsn))
            else:
                self._processor.take(row, self._position)
        return made

    def _closes(self, window: ChunkWindow, row: SignalRow) -> bool:
        return row.id == f"{window.id}-open" if row.is_deleted else row.id == f"{window.id}-close"

    def _opened(self, rows: list[SignalRow]) -> int | None:
        window = self.snapshots.window
        if window is None:
            return None
        return next((row.seq for row in rows if not row.is_deleted and row.id == f"{window.id}-open"), None)

    def _without_marks(self, found: SortedSegment, last_commit: int) -> list[pa.Table]:
        """Insert a chunk without marks after the first Commit that is later than everything that it shows."""
        window, end = self.snapshots.window, found.last_commit_end_lsn
        if window is None or self._has_marks or end is None or end < self.snapshots.reached:
            return []
        window.pass_over(found, None, last_commit)
        return [self._inserted(last_commit, _BEHIND, end, end)]

    def _inserted(self, seq: int, sub: int, lsn: int, prior_end_lsn: int) -> pa.Table:
        window = self.snapshots.insert()
        if window is None or not window.keep.any():
            return RECORDS.empty_table()
        now = clock.now_ns()
        rows = rows_of(columns_of(window.rows, self._included(window.table)), np.flatnonzero(window.keep))
        count = int(window.keep.sum())
        facts = EventSnapshot(lsn, None, now // 1000, prior_end_lsn, is_incremental=True)
        markers = pa.repeat(pa.scalar("incremental", pa.large_string()), count)
        made = self._build(window.table).reads(rows, markers, facts, now)
        # Transforms may have left records out.
        left = made.num_rows
        placed = [pa.array(np.full(left, seq), pa.int64()), pa.array(np.full(left, sub), pa.int32())]
        return pa.Table.from_arrays([*placed, *made.columns[2:]], schema=RECORDS)
