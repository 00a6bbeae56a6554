"""A run that stays: the snapshot that is required, then the stream, and both again after a fault that passes.

    attempt ─▶ fault ─▶ policy: retry ─▶ wait (backoff, or until the server accepts connections) ─▶ attempt
                             └─ wait for a person ─▶ the error ends the run

An attempt begins anew at what is durable, with the checks of a first start: the slot and the lake are claimed again,
and the server, its history and the slot are compared with what the lake has recorded (``start/continuity``). A server
that is another one, or a slot that is gone or was moved, ends the run with that error, and nothing is read from it.
What the server still has of the attempt before is ended (``postgres/sessions``). Spark's session is kept, unless its
Java process has ended. A snapshot mode that reads everything at each start (``always``) does so once in a run.

A run that starts while its server is away waits for it, too, if an earlier one has read from the same address
(``ReachedFile``). Otherwise the connector file may be wrong, and the run ends with what was found.

Limits. A run that ends by itself (``Until``) keeps its limits across attempts, and does not wait longer than
_BOUNDED_SECONDS in a row, nor at its start; whoever started it decides what follows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cdc_core.assemble import Connector, meter
from cdc_core.engine import (
    Backoff,
    BatchReport,
    Handover,
    ReachedFile,
    RoundReport,
    StreamReport,
    Until,
    WaitingFile,
    WaitingRun,
    is_retried,
)
from cdc_core.errors import CdcError, UnknownHostError, UnreachableError
from cdc_core.lsn import Lsn
from cdc_core.observe import ConnectorMetrics
from cdc_core.postgres import answers, known_error, place
from cdc_core.snapshot import SnapshotProgress, SnapshotReport, mode_actions
from cdc_core.storage_faults import storage_fault

if TYPE_CHECKING:
    from cdc_core.spark import JavaWatch

_LOOK_SECONDS = 0.5
_BOUNDED_SECONDS = 300.0
# After this time without a fault the next one is the first of a new series, also if no round was due.
_CALM_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ServiceHooks:
    """Callbacks of the caller.

    ``on_stream`` is called once, when the stream begins; ``on_wait`` once when a run begins to wait, ``on_resume`` once
    when it goes on, with the seconds since the fault and the number of attempts that it took.
    """

    on_snapshot: Callable[[list[SnapshotReport]], None]
    on_wait: Callable[[WaitingRun], None]
    on_resume: Callable[[float, int], None]
    on_round: Callable[[RoundReport], None] | None = None
    on_progress: Callable[[SnapshotProgress], None] | None = None
    on_stream: Callable[[], None] | None = None
    should_stop: Callable[[], bool] = lambda: False


class Service:
    """One run of a connector, from its start to its end. For one thread."""

    def __init__(self, connector: Connector, until: Until, hooks: ServiceHooks) -> None:
        self._connector = connector
        self._until = until
        self._hooks = hooks
        engine = connector.config.engine
        self._backoff = Backoff(
            engine.errors_max_retries,
            engine.errors_retry_delay_initial_ms,
            engine.errors_retry_delay_max_ms,
            engine.retriable_restart_connector_wait_ms,
        )
        self._file = WaitingFile(connector.config.state_path, connector.name, connector.slot)
        server = f"{place(connector.config.postgres)}/{connector.config.postgres.database_dbname}"
        self._reached = ReachedFile(connector.config.state_path, connector.name, connector.slot, server)
        self._begun = time.monotonic()
        self._failed_at: float | None = None  # the first fault of the present series
        self._since = datetime.now(UTC)
        self._retries = 0
        self._started_at: float | None = None
        self._said = self._was_interrupted = self._has_streamed = False
        self._batches = self._events = 0
        self._lsn = Lsn(0)

    def run(self) -> StreamReport | None:
        """Run until a limit is reached or the run is stopped; None if the snapshot mode does not stream.

        Raises the CdcError that ended it.
        """
        try:
            with self._connector.observed():
                return self._attempts()
        finally:
            if self._was_interrupted:
                self._file.clear()
                self._metrics.going_on()

    def _attempts(self) -> StreamReport | None:
        from cdc_core.spark import JavaWatch  # loads Spark

        while True:
            self._java = JavaWatch()
            try:
                return self._attempt()
            except Exception as error:
                fault = _ours(error, self._java)
                if fault is None:
                    raise
                if not self._waits(fault):
                    raise fault from None
                if self._hooks.should_stop():
                    return self._stopped()

    @property
    def _metrics(self) -> ConnectorMetrics:
        return meter(self._connector.context).metrics

    def _attempt(self) -> StreamReport | None:
        with Handover() as handover:
            return self._attempted(handover)

    def _attempted(self, handover: Handover) -> StreamReport | None:
        if not (self._has_streamed and mode_actions(self._connector.config.snapshot).later):
            taken = self._connector.initial_snapshot(on_progress=self._note_progress, handover=handover)
            if taken:
                self._hooks.on_snapshot(taken)
        if not self._connector.streams:
            self._note_going_on()
            return None
        done = self._connector.stream(
            self._until.after(time.monotonic() - self._begun, self._events),
            on_batch=self._note_batch,
            on_round=self._note_round,
            should_stop=self._hooks.should_stop,
            on_start=self._note_start,
            handover=handover,
        )
        if not self._was_interrupted:
            return done
        # What the attempts before it did counts, too.
        return replace(done, batches=self._batches, events=self._events, seconds=time.monotonic() - self._begun)

    def _waits(self, error: CdcError) -> bool:
        """Wait before the next attempt; False if there is to be none."""
        now = time.monotonic()
        if self._started_at is not None and now - self._started_at > _CALM_SECONDS:
            self._retries, self._failed_at = 0, None
        self._started_at = None
        sessions = self._connector.context.sessions
        if not is_retried(error, was_reached=sessions.was_accepted or self._stays()):
            return False
        if self._hooks.should_stop():
            return True
        if not self._backoff.allows(self._retries):
            return False
        if self._failed_at is None:
            self._failed_at, self._since = now, datetime.now(UTC)
        deadline = self._deadline(self._failed_at)
        if deadline is not None and now >= deadline:
            return False
        self._was_interrupted = True
        sessions.forsake()
        self._note_waiting(error)
        seconds = self._backoff.seconds(self._retries)
        self._retries += 1
        self._sleep(error, seconds if deadline is None else min(seconds, deadline - now))
        return True

    def _stays(self) -> bool:
        """Whether this run is a service whose server was reached before, by a run that has ended."""
        return self._until == Until() and self._reached.is_reached()

    def _deadline(self, failed_at: float) -> float | None:
        """When a run with limits stops waiting; None for one without."""
        until = self._until
        if until == Until():
            return None
        ends = failed_at + _BOUNDED_SECONDS
        return ends if until.max_seconds is None else min(ends, self._begun + until.max_seconds)

    def _sleep(self, error: CdcError, seconds: float) -> None:
        """Wait; not longer than until a server that did not answer accepts connections."""
        end = time.monotonic() + max(seconds, 0.05)
        options = self._connector.config.postgres
        is_away = isinstance(error, UnreachableError | UnknownHostError) and not answers(options)
        while (left := end - time.monotonic()) > 0 and not self._hooks.should_stop():
            time.sleep(min(left, _LOOK_SECONDS))
            if is_away and answers(options):
                return

    def _note_waiting(self, error: CdcError) -> None:
        waiting = WaitingRun(error.message, error.remedy, self._since, self._retries)
        self._file.write(waiting)
        self._metrics.waiting(type(error).__name__, error.message)
        if not self._said:
            self._said = True
            self._hooks.on_wait(waiting)

    def _note_going_on(self) -> None:
        """The attempt has got as far as the one before: the fault is over, at least for now."""
        if self._was_interrupted:
            self._file.clear()
            self._metrics.going_on()
        if self._said and self._failed_at is not None:
            self._said = False
            self._hooks.on_resume(time.monotonic() - self._failed_at, self._retries)

    def _note_start(self) -> None:
        self._started_at = time.monotonic()
        self._reached.note()
        if not self._has_streamed and self._hooks.on_stream is not None:
            self._hooks.on_stream()
        self._has_streamed = True
        self._note_going_on()

    def _note_progress(self, progress: SnapshotProgress) -> None:
        self._reached.note()
        self._note_going_on()
        if self._hooks.on_progress is not None:
            self._hooks.on_progress(progress)

    def _note_batch(self, report: BatchReport) -> None:
        self._batches += 1
        self._events += sum(report.events.values())
        self._lsn = max(self._lsn, report.commit_lsn)

    def _note_round(self, report: RoundReport) -> None:
        # What was merged shows that the fault is over: the next one is the first of its series.
        self._retries, self._failed_at = 0, None
        if self._hooks.on_round is not None:
            self._hooks.on_round(report)

    def _stopped(self) -> StreamReport:
        seconds = time.monotonic() - self._begun
        return StreamReport(self._batches, self._events, self._lsn, (), seconds, "request")


def _ours(error: Exception, java: JavaWatch) -> CdcError | None:
    """An error as one with a message; None for a defect of wal2lake.

    Any refused connection has this reason if Java has ended.
    """
    if isinstance(error, CdcError):
        return error
    return known_error(error) or java.explains(error) or storage_fault(error)
