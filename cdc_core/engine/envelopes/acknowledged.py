"""Reports of a run of events: what of the stream its output has acknowledged since the last report."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from cdc_core.decode.pgoutput.stream_state import SortedSegment
from cdc_core.engine.reports import BatchReport
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId

OnBatch = Callable[[BatchReport], None]


@dataclass(frozen=True, slots=True)
class _Written:
    """A segment that was handed over. ``lsn`` is durable when all of it is; ``commit_ts_us`` of its newest commit."""

    lsn: int
    commit_ts_us: int
    rows: dict[TableId, int]
    began: float


class Acknowledged:
    """Reports to ``on_batch`` the segments that became durable, with what is behind them."""

    def __init__(self, on_batch: OnBatch) -> None:
        self._on_batch = on_batch
        self._waiting: deque[_Written] = deque()
        self._rows: Counter[TableId] = Counter()
        self._number = 0

    def write(self, found: SortedSegment) -> None:
        """Record a segment that was handed over; its rows belong to the next commit."""
        for run in found.runs:
            self._rows[run.table.id] += run.raw.num_rows
        if found.last_commit_end_lsn is not None:
            newest = int(found.transactions.column("commit_ts_us")[-1].as_py())
            self._waiting.append(_Written(found.last_commit_end_lsn, newest, dict(self._rows), time.monotonic()))
            self._rows.clear()

    def reach(self, durable: int, wal_end: int) -> None:
        """Report what is durable now, if it is more than before. ``wal_end``: the server's."""
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
        self._on_batch(BatchReport(self._number, dict(rows), Lsn(done[-1].lsn), lag, seconds, behind))
