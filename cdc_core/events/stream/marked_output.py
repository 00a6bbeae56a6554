"""An output and the position that is stored with it: the run's progress, consistent with the written records.

    records up to a Commit ─▶ written ─▶ marked with the position ─▶ durable ─▶ the slot is confirmed up to it

A mark follows only a complete unit: a transaction, a message outside of transactions, all rows of a snapshot. A later
run continues after the last mark; records after that are removed or repeated (``Output``). The slot is
confirmed only up to a mark that the output has made durable, with every record before it. So after a kill the server
sends everything again that the next run needs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from cdc_core.decode import SortedSegment
from cdc_core.events.stream.acknowledged import Acknowledged, OnBatch
from cdc_core.events.stream.output import ROOM_SECONDS, Output, Position
from cdc_core.events.stream.segments import Segments
from cdc_core.lsn import Lsn
from cdc_core.offsets import Delivered
from cdc_core.snapshot import Progress

_log = logging.getLogger(__name__)

# How long the end of a run waits for unwritten records.
_SETTLE_SECONDS = 30.0


class MarkedOutput:
    """``output`` with the ``position`` of its last mark. To be opened before it is used. For one thread."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.position = Position()
        self._acknowledged: Acknowledged | None = None

    def report(self, on_batch: OnBatch | None, wants_message: Callable[[str], bool]) -> None:
        """Report what of the stream is durable. ``wants_message``: whether messages of a prefix are captured."""
        self._acknowledged = None if on_batch is None else Acknowledged(on_batch, wants_message)

    def open(self) -> Position:
        """Open the output at the position that the last run stored, and return that position.

        The rows of an interrupted snapshot are removed.
        """
        self.position = self.output.open()
        return self.position

    def mark(self, position: Position) -> None:
        """Store that everything written so far is complete at this position; it is durable later."""
        self.position = position
        self.output.mark(position)

    def mark_durably(self, position: Position) -> None:
        """As ``mark``, and wait until it is durable. Raises TransientError if the output does not get there."""
        self.mark(position)
        self.output.settle()

    def write(self, records: pa.Table, segment: SortedSegment, is_open: bool, at_commit: Progress | None) -> int:
        """Write a segment's records, and mark the output after the last Commit among them; returns their number.

        ``is_open``: the segment ends inside a transaction. ``at_commit``: the progress of requested snapshots at that
        Commit, None if it is unchanged.
        """
        written = self._write_commits(records, segment, at_commit)
        if not is_open and segment.messages and not self.output.is_marked:
            # Messages outside of transactions may be all that follows the last Commit.
            behind = Lsn(segment.messages[-1].lsn + 1)
            self.mark(replace(self.position, lsn=max(self.position.lsn, behind)))
        if self._acknowledged is not None:
            self._acknowledged.write(segment)
        return written

    def write_idle(self, records: pa.Table, is_complete: bool) -> int:
        """Write a heartbeat that is due while nothing is received; ``is_complete``: no transaction is open."""
        written = self.output.write(records)
        if written and is_complete:
            self.mark(self.position)
        else:
            self.output.flush()
        return written

    def confirm(self, segments: Segments) -> None:
        """Allow the slot to be confirmed up to the durable position, and report that."""
        durable = self.output.durable_lsn
        segments.confirm(durable)
        if self._acknowledged is not None:
            self._acknowledged.reach(durable, segments.wal_end)

    def settle(self, segments: Segments) -> None:
        """Wait until the last mark is durable, and confirm it; after a time-out the next run writes the rest again."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while not (is_settled := self.output.settle(ROOM_SECONDS)) and time.monotonic() < deadline:
            segments.tick()
        if not is_settled:
            _log.warning("Not everything was written by the end of the run; the next run writes the rest.")
        self.confirm(segments)

    def _write_commits(self, records: pa.Table, segment: SortedSegment, at_commit: Progress | None) -> int:
        if segment.last_commit_end_lsn is None:
            return self.output.write(records)
        kinds, seq = (segment.transactions.column(name).to_numpy() for name in ("kind", "seq"))
        whole = int(np.searchsorted(records.column("seq").to_numpy(), seq[kinds == ord("C")][-1], side="right"))
        self.output.write(records.slice(0, whole))
        progress = self.position.progress if at_commit is None else at_commit.to_json()
        left = self.position.delivered
        if left and (segment.last_commit_lsn or 0) >= Delivered.from_json(left).last_lsn:
            left = ""
        self.mark(Position(Lsn(segment.last_commit_end_lsn), progress=progress, delivered=left))
        self.output.write(records.slice(whole))
        self.output.flush()
        return int(records.num_rows)
