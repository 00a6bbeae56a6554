"""The streaming run: batches to the changelog, rounds of merges to the lake, and last of all the slot.

    batch ─▶ append, table by table ─▶ confirm to the slot ─▶ … ─▶ round: check, merge, table by table
                 each append carries its own position             a merge carries the LSN it reached

Crash safety. Let S be what the slot was told, C(t) the position in table t's changelog, M(t) the LSN in t's lake table.
The order of steps keeps  M(t) ≤ round ≤ C(t)  and  S ≤ min C(t):

* before an append         the slot sends the batch again; C(t) is unchanged, nothing is dropped.
* between two appends      the slot sends it again; tables with the append drop what they have, the others take it.
* after appends, before the confirm   all drop it; the confirm follows with the next batch or the next silence.
* inside a merge           Delta commits it whole or not at all; the round's LSN is the transaction's version, so a
                           merge that did commit is skipped when it is asked for again.
* between two merges       the tables stand at different LSNs until the next round brings them level.

Nothing else is remembered between runs: no checkpoint file, no batch numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from cdc_core import failpoints
from cdc_core.clock import now_us
from cdc_core.engine.batch import Batch
from cdc_core.engine.read import SlotReader
from cdc_core.engine.reports import BatchReport, RoundReport, StreamReport, Until
from cdc_core.lsn import Lsn

_POLL_SECONDS = 0.1


class Sink(Protocol):
    """Where batches go (``cdc_core.engine.lake.LakeSink``, ``cdc_core.engine.noop.NoopSink``)."""

    def append(self, batch: Batch) -> None:
        """Make every row of the batch durable, or raise; idempotent by each table's own position."""

    def merge(self, to_lsn: Lsn) -> RoundReport:
        """Bring every table with news to ``to_lsn``. A table that cannot follow is named in ``failed``."""

    def has_news(self, to_lsn: Lsn) -> bool:
        """Whether a merge to ``to_lsn`` would do anything."""

    def expire(self) -> None:
        """Let go of what need not be kept any longer; asked often, does it once a day."""


@dataclass(slots=True)
class Hooks:
    """What the caller wants to hear, and how it asks the run to end."""

    on_batch: Callable[[BatchReport], None] | None = None
    on_round: Callable[[RoundReport], None] | None = None
    should_stop: Callable[[], bool] | None = None


@dataclass(slots=True)
class _Tally:
    batches: int = 0
    events: int = 0
    confirmed: int = 0
    complete: int = 0
    last_commit_ts_us: int | None = None
    rounds: list[RoundReport] = field(default_factory=list)


class StreamRun:
    """Drains a SlotReader into a Sink until told otherwise."""

    def __init__(
        self,
        reader: SlotReader,
        sink: Sink,
        confirm: Callable[[int], None],
        merge_interval_seconds: float,
        start_lsn: Lsn,
        hooks: Hooks | None = None,
    ) -> None:
        self._reader = reader
        self._sink = sink
        self._confirm_to_slot = confirm
        self._merge_interval = merge_interval_seconds
        self._hooks = hooks or Hooks()
        self._tally = _Tally(confirmed=start_lsn, complete=start_lsn)
        self._started = time.monotonic()
        self._last_merge = time.monotonic()

    def run(self, until: Until) -> StreamReport:
        """Stream until one of ``until``'s bounds is met; what was read by then is merged, what is too old let go.

        Raises what the server, the decoding or the lake raised; everything appended by then stays.
        """
        while True:
            batch = self._reader.next_batch(_POLL_SECONDS)
            if batch is not None:
                self._append(batch)
            else:
                self._confirm_silence()
            reason = self._stop_reason(until, was_idle=batch is None)
            if reason or self._merge_is_due():
                self._merge()
                self._sink.expire()
            if reason:
                return self._report(reason)

    def _append(self, batch: Batch) -> None:
        started = time.monotonic()
        failpoints.hit(failpoints.AFTER_SPOOL)
        self._sink.append(batch)
        tally = self._tally
        tally.batches += 1
        tally.events += batch.rows
        if batch.complete_lsn is not None and batch.confirm_lsn is not None:
            tally.complete = max(tally.complete, batch.complete_lsn)
            tally.last_commit_ts_us = batch.last_commit_ts_us
            failpoints.hit(failpoints.BEFORE_CONFIRM)
            self._confirm(batch.confirm_lsn)
            failpoints.hit(failpoints.AFTER_CONFIRM)
        self._reader.done(batch)
        if self._hooks.on_batch and batch.rows:
            events = {table: sum(v.rows for v in versions) for table, versions in batch.versions.items()}
            self._hooks.on_batch(
                BatchReport(batch.number, events, Lsn(tally.complete), self._lag_bytes(), time.monotonic() - started)
            )

    def _confirm(self, lsn: int) -> None:
        if lsn > self._tally.confirmed:
            self._tally.confirmed = lsn
            self._confirm_to_slot(lsn)

    def _confirm_silence(self) -> None:
        """Tell the slot of WAL that held nothing for us, so that an idle database keeps none of it for our sake."""
        position = self._reader.idle_position()
        if position is not None:
            self._confirm(position)

    def _merge_is_due(self) -> bool:
        return (
            self._sink.has_news(Lsn(self._tally.complete))
            and time.monotonic() - self._last_merge >= self._merge_interval
        )

    def _merge(self) -> None:
        if not self._sink.has_news(Lsn(self._tally.complete)):
            return
        report = self._sink.merge(Lsn(self._tally.complete))
        self._last_merge = time.monotonic()
        report = RoundReport(report.lsn, report.merges, report.failed, self._lag_bytes(), self._lag_seconds())
        self._tally.rounds.append(report)
        if self._hooks.on_round:
            self._hooks.on_round(report)

    def _stop_reason(self, until: Until, was_idle: bool) -> str | None:
        elapsed = time.monotonic() - self._started
        reasons = (
            ("request", self._hooks.should_stop is not None and self._hooks.should_stop()),
            ("lsn", until.lsn is not None and self._tally.confirmed >= until.lsn),
            ("rows", until.max_rows is not None and self._tally.events >= until.max_rows),
            ("time", until.max_seconds is not None and elapsed >= until.max_seconds),
            (
                "idle",
                until.idle_seconds is not None
                and was_idle
                and min(elapsed, self._reader.idle_seconds) >= until.idle_seconds
                and self._reader.is_drained,
            ),
        )
        return next((name for name, met in reasons if met), None)

    def _lag_bytes(self) -> int:
        return max(0, self._reader.wal_end - self._tally.confirmed)

    def _lag_seconds(self) -> float:
        """How old the newest merged commit is while more is waiting, else 0."""
        if self._reader.is_drained or self._tally.last_commit_ts_us is None:
            return 0.0
        return max(0.0, (now_us() - self._tally.last_commit_ts_us) / 1e6)

    def _report(self, reason: str) -> StreamReport:
        tally = self._tally
        seconds = time.monotonic() - self._started
        return StreamReport(tally.batches, tally.events, Lsn(tally.complete), tuple(tally.rounds), seconds, reason)
