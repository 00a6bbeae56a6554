"""What a stream has brought so far: its transactions, changes that are not captured, and its last change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdc_core.decode.pgoutput.stream_state import SortedSegment

_COMMIT = ord("C")


@dataclass(frozen=True, slots=True)
class LastChange:
    """A change of a captured table. ``commit_ts_us``: microseconds since 1970-01-01T00:00:00Z."""

    seq: int
    table: str
    lsn: int
    commit_lsn: int
    xid: int
    commit_ts_us: int


class Seen:
    """Noted by the thread that sorts; read by any."""

    def __init__(self) -> None:
        self.transactions = 0
        self.filtered = 0
        self.last_xid: int | None = None
        self.last: LastChange | None = None

    def note(self, found: SortedSegment) -> None:
        """Count a segment."""
        marks = found.transactions
        ended = np.flatnonzero(marks.column("kind").to_numpy() == _COMMIT)
        if len(ended):
            self.last_xid = int(marks.column("xid")[int(ended[-1])].as_py())
            self.transactions += len(ended)
        self.filtered += found.row_messages - found.captured_rows - len(found.truncates)
        names = ("seq", "lsn", "commit_lsn", "xid", "commit_ts_us")
        lasts = []
        for run in (each for each in found.runs if each.raw.num_rows):
            seq, *place = (int(run.raw.column(name)[run.raw.num_rows - 1].as_py()) for name in names)
            lasts.append(LastChange(seq, str(run.table.id), *place))
        lasts += [
            LastChange(cut.seq, str(cut.tables[-1].id), cut.lsn, cut.commit_lsn, cut.xid, cut.commit_ts_us)
            for cut in found.truncates
        ]
        if lasts:
            self.last = max(lasts, key=lambda each: each.seq)
