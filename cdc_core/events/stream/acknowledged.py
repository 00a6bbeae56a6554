"""Reports of a run of events: what of the stream its output has acknowledged since the last report."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from cdc_core.clock import now_us
from cdc_core.decode import SortedSegment
from cdc_core.engine import BatchReport
from cdc_core.lake import StreamTable
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId

OnBatch = Callable[[BatchReport], None]


@dataclass(frozen=True, slots=True)
class _Written:
    """A segment that was handed over. ``lsn`` is durable when all of it is; ``commit_ts_us`` of its newest commit."""

    lsn: int
    commit_ts_us: int
    rows: dict[TableId, int]
    messages: int
    began: float


class Acknowledged:
    """Reports to ``on_batch`` the segments that became durable, with what is behind them.

    ``wants_message``: whether messages of a prefix are captured.
    """

    def __init__(self, on_batch: OnBatch, wants_message: Callable[[str], bool]) -> None:
        self._on_batch, self._wants_message = on_batch, wants_message
        self._messages = 0
        self._waiting: deque[_Written] = deque()
        self._rows: Counter[TableId] = Counter()
        self._number = 0

    def write(self, segment: SortedSegment) -> None:
        """Record a segment that was handed over; its rows belong to the next commit."""
        for run in segment.runs:
            self._rows[run.table.id] += run.raw.num_rows
        self._messages += sum(self._wants_message(message.prefix) for message in segment.messages)
        if segment.last_commit_end_lsn is not None:
            newest = int(segment.transactions.column("commit_ts_us")[-1].as_py())
            self._append(segment.last_commit_end_lsn, newest)
        elif self._messages and not segment.open_transaction:
            # Messages outside of transactions, for which the WAL has no time.
            self._append(segment.messages[-1].lsn + 1, now_us())

    def _append(self, lsn: int, commit_ts_us: int) -> None:
        written = _Written(lsn, commit_ts_us, dict(self._rows), self._messages, time.monotonic())
        self._waiting.append(written)
        self._rows.clear()
        self._messages = 0

    def reach(self, durable: int, wal_end: int) -> None:
        """Report newly durable segments, if there are any. ``wal_end``: the server's."""
        rows: Counter[TableId] = Counter()
        done: list[_Written] = []
        while self._waiting and self._waiting[0].lsn <= durable:
            done.append(self._waiting.popleft())
            rows.update(done[-1].rows)
        if not done:
            return
        self._number += 1
        behind = max(0.0, time.time() - done[-1].commit_ts_us / 1e6)
        seconds = time.monotonic() - done[0].began
        lag = max(0, wal_end - durable)
        messages = sum(entry.messages for entry in done)
        own = {StreamTable.MESSAGES: messages} if messages else {}
        self._on_batch(BatchReport(self._number, dict(rows), Lsn(done[-1].lsn), lag, seconds, behind, own))
