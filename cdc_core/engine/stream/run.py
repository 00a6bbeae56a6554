"""The streaming run: reads a batch of everything received, merges it in one round, and repeats.

    batch ─▶ round: append ─▶ check ─▶ apply, all tables in parallel
                      │ durable
                      └─▶ confirm to the slot
                 an append commits its own position, a lake commit the LSN it reached

While a round runs the next batch is collected, so a slow round makes the next batch larger, not later.

Crash safety. Let S be the LSN confirmed to the slot, C(t) the position in table t's changelog, M(t) the LSN in t's lake
table. The order of steps guarantees  M(t) ≤ round ≤ C(t)  and  S ≤ min C(t). A crash

* before an append: the slot sends the batch again; C(t) is unchanged, nothing is dropped.
* between two appends: the slot sends it again; tables with the append drop the rows they have, the others append them.
* after the appends, before the confirmation: all tables drop the rows; the slot is confirmed with the next batch or
  when the stream is idle.
* during an apply: a Delta commit is atomic; the round's LSN is in the commit, so an apply that was committed is skipped
  when it is repeated.
* between two applies: the tables are merged up to different LSNs until the next round merges all up to the same LSN.

No other state is kept between runs: no checkpoint file, no batch numbers.

Confirmations. A confirmed position lets the server remove WAL, so everything that is known only from the WAL before it
must be durable, and so must the record of the position itself (``continuity``). There are two places that confirm:

* ``_round``, the end of the last complete transaction of a batch. Durable before: every row of the batch, in its
  changelog, and its messages and transaction metadata, in tables of the stream's own (``Sink.append``); the signals of
  the batch, in the stored progress of snapshots (``SignalSink.append`` stores it first); tables that were renamed, as
  tables to be re-read (at the start of ``LakeSink.append``, and by ``note_renamed`` for a batch that has nothing to
  append). A changed schema version needs no
  record here: it is announced together with a row, and the row's slice records it before it is appended.
* ``_confirm_silence``, the end of the WAL that the server had read when nothing came. Durable before: as above for
  every batch, because there is a position only when all that was received is done; renamed tables by ``note_renamed``.

Both go through ``Confirmations``, which records the position in the lake and then hands it to the replication
connection; this sends no other position (``ReplicationStream.idle_confirm``, by which the connection confirms by
itself, is used by ``envelopes`` only, whose file is flushed and marked before). With ``lsn.flush.mode=manual``
positions are recorded and not sent, so a user may advance the slot up to the recorded one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from cdc_core import failpoints
from cdc_core.clock import now_us
from cdc_core.engine.reading.batch import Batch
from cdc_core.engine.reading.batch_builder import SignalTable
from cdc_core.engine.reading.idle import IdleEnd
from cdc_core.engine.reading.slot_reader import SlotReader
from cdc_core.engine.reports import RENEWAL, BatchReport, RoundReport, StreamReport, Until
from cdc_core.engine.stream.confirmations import Confirmations
from cdc_core.lake import ChangelogPosition, LastCommit
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId

_POLL_SECONDS = 0.1
_KEPT_ROUNDS = 1_000
_TELL_SECONDS = 1.0


class Sink(Protocol):
    """The destination of batches (``engine.round.lake_sink.LakeSink``, ``engine.stream.noop.NoopSink``).

    Threads. All methods are called by the thread that runs ``StreamRun``, one at a time, so a sink needs no lock. It
    may have threads of its own; their results take effect, and their errors are raised, in one of these methods only.
    The server gets keepalives from another thread (``SlotReader``), so ``append`` and ``merge`` may take as long as
    they need.

    Order. Batches arrive in stream order, each once in a run. A batch ends at the end of a transaction, or inside one
    that is larger than a batch; then ``to_lsn`` is before it, and no row of it may be shown to readers yet. Within a
    batch the order of rows holds for each table, not between tables: ``to_lsn`` is what makes tables consistent.

    Repeats. After a crash, or an error of any method, the run ends; the next one gets everything again that was not
    confirmed, divided into other batches, and possibly preceded by rows that the sink has. So a sink recognises a row
    by its position (``commit_lsn``, ``tx_index``), which is the same each time, and never by the number of a batch.
    """

    def append(self, batch: Batch | None, to_lsn: Lsn) -> None:
        """Make every row of the batch durable, or raise; the position is confirmed when this returns.

        Then each row of the batch is on the destination's storage, as is all that only its WAL says (signals, renames):
        the server may remove this WAL at once. If this returned earlier, a crash would lose rows. An error leaves
        nothing confirmed, and some tables with the batch and some without.

        ``batch`` is None for a round without new rows. ``to_lsn`` is what ``merge`` reaches, and never decreases. The
        tables may be merged in the same work: a row that was decoded to be stored is not read again to be merged.
        """

    def merge(self) -> RoundReport:
        """Merge every due table up to the ``to_lsn`` of ``append``, called before; a table that is further stays.

        May fail for each table alone: such a table is listed in the report's ``failed``, nothing of its slice is
        visible, and a later round repeats it from what is durable. The batch's files exist until this returns, no
        longer. It may take minutes, and nothing that is confirmed depends on it.
        """

    def has_backlog(self, to_lsn: Lsn) -> bool:
        """Whether a round to ``to_lsn`` without a batch has any work. Asked often; has no effect."""

    def call_all(self) -> None:
        """Let the next round merge every table, also one that is merged less often than others. Called at the end."""

    def note_renamed(self) -> None:
        """Record what the relations received so far say beside rows, before a position after them is confirmed.

        Called instead of ``append`` if there is nothing to append. When it returns, the record is durable: otherwise a
        crash would leave a renamed table under its old name, and the WAL that says so would be gone. May be repeated.
        """

    @property
    def is_busy(self) -> bool:
        """Whether background work is in progress that changes the lake: then the run is not idle, and does not end."""

    @property
    def unmerged(self) -> dict[TableId, str]:
        """The tables that are paused, or whose last merge failed, with the reason."""

    def between_rounds(self, passed: int) -> bool:
        """Do work outside rounds; ``passed``: the LSN up to which all received is processed. Called often.

        Called after each round, and until the next one about ten times a second, or at once again where it returns that
        there is more to do. Never between ``append`` and ``merge``. A round that is due waits for it, so a step takes a
        fraction of a second, and what takes longer belongs in a thread. What it writes is committed with the positions
        of the tables that it changes, as by a round (``lake.positions``); it confirms nothing.
        """

    def close(self) -> None:
        """Stop background work. Called once, also after an error; what is not committed is repeated by the next run."""


@dataclass(frozen=True, slots=True)
class OpenedSink:
    """An open sink, the positions of the changelogs that it writes, and the signal table (or None)."""

    sink: Sink
    positions: Mapping[TableId, ChangelogPosition]
    signals: SignalTable | None


@dataclass(slots=True)
class Hooks:
    """Callbacks of the caller: reports, whether the run is to stop, and when the stream begins.

    ``on_unmerged`` gets the tables that are not merged with the reason (``Sink.unmerged``), about once a second.
    """

    on_batch: Callable[[BatchReport], None] | None = None
    on_round: Callable[[RoundReport], None] | None = None
    should_stop: Callable[[], bool] | None = None
    on_start: Callable[[], None] | None = None
    on_unmerged: Callable[[Mapping[TableId, str]], None] | None = None


@dataclass(slots=True)
class _Tally:
    batches: int = 0
    events: int = 0
    confirmed: int = 0
    complete: int = 0
    silent: int = 0
    last_commit_ts_us: int | None = None
    rounds: list[RoundReport] = field(default_factory=list)


class StreamRun:
    """Streams batches from a SlotReader to a Sink until a limit is reached or it is stopped.

    ``before_durable`` is called after something was received, before any of it is durable or confirmed; ``heartbeat``
    between rounds, often: it runs heartbeat.action.query when this is due. ``needs_sender``: whether the run is to end
    at this confirmed LSN, so that the stream is begun anew (``RENEWAL``).
    """

    def __init__(
        self,
        reader: SlotReader,
        sink: Sink,
        confirmations: Confirmations,
        round_seconds: float,
        start_lsn: Lsn,
        wal_end: Callable[[], int],
        hooks: Hooks | None = None,
        *,
        before_durable: Callable[[], None] = lambda: None,
        heartbeat: Callable[[], None] = lambda: None,
        needs_sender: Callable[[int], bool] = lambda confirmed: False,
    ) -> None:
        self._reader = reader
        self._idle = IdleEnd(wal_end)
        self._sink = sink
        self._confirmations = confirmations
        self._round_seconds = round_seconds
        self._hooks = hooks or Hooks()
        self._before_durable = before_durable
        self._heartbeat = heartbeat
        self._needs_sender = needs_sender
        self._tally = _Tally(confirmed=start_lsn, complete=start_lsn)
        self._started = time.monotonic()
        self._last_round = self._told_at = float("-inf")
        self._step_seconds = 0.0

    def run(self, until: Until) -> StreamReport:
        """Stream until one of the bounds is reached; by then everything read is merged and expired changes are removed.

        Raises the errors of the server, of decoding or of the lake; everything appended by then is kept.
        """
        if self._hooks.on_start is not None:
            self._hooks.on_start()
        while True:
            self._wait_for_turn(works=True)
            self._heartbeat()
            batch = self._reader.next_batch(_POLL_SECONDS)
            if batch is not None:
                self._round(batch)
            else:
                self._confirm_silence()
                if self._sink.has_backlog(Lsn(self._tally.complete)):
                    self._round(None)
            self._confirmations.tick()
            self._step()
            # After the step: it takes the signals that are there, and a run that ends when it is idle must see them.
            reason = self._stop_reason(until, was_idle=batch is None or not batch.rows)
            self._tell_unmerged()
            if reason:
                self._merge_rest()
                if self._tally.rounds and self._tally.rounds[-1].failed:
                    # A table may have been corrected since by a re-read, which is not part of a round of changes.
                    self._sink.append(None, Lsn(self._tally.complete))
                    self._tally.rounds.append(self._sink.merge())
                self._confirmations.flush()
                return self._report(reason)

    def _tell_unmerged(self) -> None:
        if self._hooks.on_unmerged is not None and time.monotonic() - self._told_at >= _TELL_SECONDS:
            self._told_at = time.monotonic()
            self._hooks.on_unmerged(self._sink.unmerged)

    def _step(self) -> bool:
        """Do a step of what is done between rounds; returns whether there is more to do at once."""
        began = time.monotonic()
        has_more = self._sink.between_rounds(max(self._tally.complete, self._tally.silent))
        self._step_seconds = time.monotonic() - began
        return has_more

    def _wait_for_turn(self, *, works: bool) -> None:
        """Wait for the configured time between rounds, unless the run is asked to stop.

        ``works``: do steps meanwhile, as long as one that takes as long as the last one ends before the round is due.
        At least one was done after the last round, however long it took.
        """
        while (left := self._last_round + self._round_seconds - time.monotonic()) > 0:
            if self._must_stop():
                return
            self._heartbeat()
            if not (works and self._step_seconds < left and self._step()):
                time.sleep(min(left, _POLL_SECONDS))

    def _must_stop(self) -> bool:
        return self._hooks.should_stop is not None and self._hooks.should_stop()

    def _round(self, batch: Batch | None) -> None:
        self._last_round = started = time.monotonic()
        failpoints.hit(failpoints.AFTER_SPOOL)
        tally = self._tally
        if batch is not None:
            self._before_durable()
            tally.batches += 1
            tally.events += batch.rows
            if batch.complete_lsn is not None:
                tally.complete = max(tally.complete, batch.complete_lsn)
                tally.last_commit_ts_us = batch.last_commit_ts_us

        lsn = Lsn(tally.complete)
        has_work = batch is None or not batch.is_empty or self._sink.has_backlog(lsn)
        if has_work:
            self._sink.append(batch, lsn)
        else:
            self._sink.note_renamed()
        if batch is not None:
            self._note_durable(batch, time.monotonic() - started)
        report = self._sink.merge() if has_work else None
        if batch is not None:
            self._reader.done(batch)
        if report is not None and (report.merges or report.failed):
            lags = None if batch is None else batch.lags({m.table: m.committed_us for m in report.merges})
            self._note(replace(report, lag_bytes=self._lag_bytes(), lag_seconds=self._lag_seconds(), lags=lags))

    def _note_durable(self, batch: Batch, seconds: float) -> None:
        """Confirm and report a batch, every row of which is durable."""
        if batch.confirm_lsn is not None:
            self._confirm(batch.confirm_lsn, _last_commit(batch))
            failpoints.hit(failpoints.AFTER_CONFIRM)
        if self._hooks.on_batch and (batch.rows or batch.own_rows):
            events = {table: sum(v.rows for v in versions) for table, versions in batch.versions.items()}
            behind = None if batch.last_commit_ts_us is None else max(0.0, (now_us() - batch.last_commit_ts_us) / 1e6)
            own = {table: sum(part.num_rows for part in parts) for table, parts in batch.own_rows.items()}
            lsn, lag = Lsn(self._tally.complete), self._lag_bytes()
            self._hooks.on_batch(BatchReport(batch.number, events, lsn, lag, seconds, behind, own))

    def _merge_rest(self) -> None:
        """Unless the run is asked to stop: run the rounds that merge what the former ones left in the changelogs.

        Each of them merges some of it, or makes some of what it waits for, so they end.
        """
        self._sink.call_all()
        while self._sink.has_backlog(Lsn(self._tally.complete)) and not self._must_stop():
            self._wait_for_turn(works=False)
            self._round(None)

    def _note(self, report: RoundReport) -> None:
        tally = self._tally
        tally.rounds.append(report)
        del tally.rounds[:-_KEPT_ROUNDS]
        if self._hooks.on_round:
            self._hooks.on_round(report)

    def _confirm(self, lsn: int, last: LastCommit | None = None) -> None:
        if lsn > self._tally.confirmed:
            self._tally.confirmed = lsn
            self._confirmations.confirm(lsn, last)

    def _confirm_silence(self) -> None:
        """Confirm WAL without captured changes to the slot, so that an idle database does not retain it."""
        position = self._reader.idle_position()
        if position is not None and position > self._tally.confirmed:
            self._before_durable()
        if position is not None:
            self._tally.silent = position
            self._sink.note_renamed()
            self._confirm(position)

    def _stop_reason(self, until: Until, was_idle: bool) -> str | None:
        elapsed = time.monotonic() - self._started
        silent = min(elapsed, self._reader.idle_seconds) if was_idle else 0.0
        passed = max(self._tally.complete, self._tally.silent)
        reasons = (
            ("request", self._must_stop()),
            ("lsn", until.lsn is not None and self._tally.confirmed >= until.lsn),
            ("rows", until.max_rows is not None and self._tally.events >= until.max_rows),
            ("time", until.max_seconds is not None and elapsed >= until.max_seconds),
            (RENEWAL, self._needs_sender(self._tally.confirmed)),
            (
                "idle",
                self._idle.is_reached(until.idle_seconds, silent, passed)
                and not self._reader.has_changes
                and not self._sink.is_busy,
            ),
        )
        return next((name for name, met in reasons if met), None)

    def _lag_bytes(self) -> int:
        return max(0, self._reader.wal_end - self._tally.confirmed)

    def _lag_seconds(self) -> float:
        """Return the age of the newest merged commit in seconds while more changes are waiting, else 0."""
        if self._reader.is_drained or self._tally.last_commit_ts_us is None:
            return 0.0
        return max(0.0, (now_us() - self._tally.last_commit_ts_us) / 1e6)

    def _report(self, reason: str) -> StreamReport:
        tally = self._tally
        seconds = time.monotonic() - self._started
        rounds, failed = tuple(tally.rounds), self._sink.unmerged
        return StreamReport(tally.batches, tally.events, Lsn(tally.complete), rounds, seconds, reason, failed)


def _last_commit(batch: Batch) -> LastCommit | None:
    """The last transaction of a batch with captured rows: a restarted stream is recognised by it."""
    if batch.complete_lsn is None or not batch.rows:
        return None
    return LastCommit(Lsn(batch.complete_lsn), batch.last_xid, batch.last_ts_us)
