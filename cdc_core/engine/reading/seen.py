"""What a stream has brought so far: its transactions, what of it is not captured, and its last change or message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cdc_core.decode import LogicalMessage, SortedSegment
from cdc_core.lake import StreamTable

_COMMIT = ord("C")


@dataclass(frozen=True, slots=True)
class LastChange:
    """A change of a captured table, or a captured message. ``commit_ts_us``: microseconds since 1970-01-01T00:00:00Z.

    A message outside of transactions has no ``xid``, and its own LSN as ``commit_lsn``.
    """

    seq: int
    table: str
    lsn: int
    commit_lsn: int
    xid: int | None
    commit_ts_us: int


class Seen:
    """Noted by the thread that sorts; read by any. ``wants_message``: whether messages of a prefix are captured."""

    def __init__(self, wants_message: Callable[[str], bool] = lambda prefix: False) -> None:
        self._wants_message = wants_message
        self.transactions = 0
        self.filtered = 0
        self.last_xid: int | None = None
        self.last: LastChange | None = None

    def note(self, segment: SortedSegment) -> None:
        """Count a segment."""
        marks = segment.transactions
        ended = np.flatnonzero(marks.column("kind").to_numpy() == _COMMIT)
        if len(ended):
            self.last_xid = int(marks.column("xid")[int(ended[-1])].as_py())
            self.transactions += len(ended)
        messages = [message for message in segment.messages if self._wants_message(message.prefix)]
        self.filtered += segment.row_messages - segment.captured_rows - len(segment.truncates)
        self.filtered += len(segment.messages) - len(messages)
        names = ("seq", "lsn", "commit_lsn", "xid", "commit_ts_us")
        lasts = []
        for run in (run for run in segment.runs if run.raw.num_rows):
            seq, *place = (int(run.raw.column(name)[run.raw.num_rows - 1].as_py()) for name in names)
            lasts.append(LastChange(seq, str(run.table.id), *place))
        lasts += [
            LastChange(cut.seq, str(cut.tables[-1].id), cut.lsn, cut.commit_lsn, cut.xid, cut.commit_ts_us)
            for cut in segment.truncates
        ]
        lasts += [_of_message(message) for message in messages[-1:]]
        if lasts:
            self.last = max(lasts, key=lambda change: change.seq)


def _of_message(message: LogicalMessage) -> LastChange:
    commit_lsn = message.lsn if message.commit_lsn is None else message.commit_lsn
    name = StreamTable.MESSAGES.id.table
    return LastChange(message.seq, name, message.lsn, commit_lsn, message.xid, message.commit_ts_us)
