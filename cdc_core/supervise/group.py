"""Several connectors in one process: a supervised run each, in a thread of its own.

    files ─▶ opened, checked together ─▶ a thread each: run ─▶ error ─▶ wait ─▶ file read again ─▶ run …
                                                            └─▶ end of its limits

They share Spark's session with its Java process and workers (``spark/session``), the metrics endpoint, the log, signals
and the folder of temporary files. All else belongs to one connector: connections, claim, threads, state folder,
metrics, observers. An error of one does not reach another.

A transient fault is retried by the run itself (``service``). An error that waits for an operator ends the run, also one
of the connector file at the start. The connector starts again, with its file read again, after _FIRST_SECONDS, and
after twice as long each time, _LONGEST_SECONDS at most. A group with limits (``Until``) does not start one again.

The group ends when no connector runs: each has ended, or waits for its next start. So what supervises the process sees
a group in which nothing works, as it sees a single run that fails.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from cdc_core.assemble import Connector, meter
from cdc_core.config import ConnectorConfig, check_together
from cdc_core.connector_threads import of_connector
from cdc_core.engine import StreamReport, Until, WaitingFile, WaitingRun, spark_scratch
from cdc_core.errors import CdcError
from cdc_core.observe import ConnectorMetrics, forget_metrics, metrics_of
from cdc_core.supervise.service import Service, ServiceHooks

_FIRST_SECONDS, _LONGEST_SECONDS = 10.0, 600.0
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class GroupHooks:
    """Callbacks of the caller, each in the thread of the connector that it concerns.

    ``of_run`` returns the hooks of a connector's run. ``on_end`` is called when a run has ended without an error,
    ``on_failed`` with the error that ended one and the seconds until the next start, None if there is none.
    """

    of_run: Callable[[Connector], ServiceHooks]
    on_end: Callable[[Connector, StreamReport | None], None]
    on_failed: Callable[[Exception, float | None], None]
    should_stop: Callable[[], bool] = lambda: False


@dataclass(slots=True, eq=False)
class _Member:
    """One file, and the connector in it or the error that it has.

    ``name`` is the connector's, or the path of a file that has not been valid yet; ``metrics`` have it as their label.
    ``failures`` are the starts in a row that ended with an error, ``since`` the time of the first of them.
    """

    path: Path
    name: str
    opened: Connector | CdcError = field(init=False)
    metrics: ConnectorMetrics | None = None
    failures: int = 0
    since: datetime | None = None
    has_failed: bool = False

    def read(self, open_file: Callable[[Path], Connector]) -> None:
        """Read the file."""
        try:
            self.opened = open_file(self.path)
        except CdcError as error:
            self.opened = error

    @property
    def connector(self) -> Connector | None:
        """The connector of a valid file."""
        return None if isinstance(self.opened, CdcError) else self.opened


class ConnectorGroup:
    """The connectors of some files. Opening connects to nothing; ``run`` may be called once."""

    def __init__(self, paths: Sequence[Path], open_file: Callable[[Path], Connector]) -> None:
        """Open the files. Raises ConfigError if none is valid, or if they cannot run in one process."""
        self._open_file = open_file
        self._members = [_Member(path, str(path)) for path in paths]
        self._running = set(self._members)
        self._changed = threading.Condition()  # of _running, and of the members' connectors
        for member in self._members:
            member.read(open_file)
        if not self.connectors:
            raise next(member.opened for member in self._members if isinstance(member.opened, CdcError))
        check_together(self._configs())
        for member in self._members:
            member.name = member.name if member.connector is None else member.connector.name
        observe = self.connectors[0].config.observe
        self._address = (observe.metrics_host, observe.metrics_port)

    @property
    def connectors(self) -> list[Connector]:
        """The connectors of the valid files."""
        return [member.connector for member in self._members if member.connector is not None]

    def run(self, until: Until, hooks: GroupHooks) -> bool:
        """Run until each connector has ended, or none runs; returns whether all have ended without an error.

        Raises ConfigError if the metrics endpoint is required and cannot be served.
        """
        spark_scratch(self.connectors[0].config.state_path.resolve())
        for member in self._members:
            self._count(member)
        threads = [
            threading.Thread(target=self._stay, args=(member, until, hooks), name=f"run {member.name}", daemon=True)
            for member in self._members
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return not any(member.has_failed for member in self._members)

    def _stay(self, member: _Member, until: Until, hooks: GroupHooks) -> None:
        """Run a connector until it has ended, and again after errors while others run."""
        try:
            seconds = self._run_once(member, until, hooks)
            while seconds is not None and self._rests(member, seconds, hooks.should_stop):
                self._read_again(member)
                seconds = self._run_once(member, until, hooks)
        finally:
            with self._changed:
                self._running.discard(member)
                self._changed.notify_all()

    def _run_once(self, member: _Member, until: Until, hooks: GroupHooks) -> float | None:
        """Run a connector to its end; returns the seconds until its next start, None if there is none."""
        with of_connector(member.name):
            try:
                report = self._run(member, until, hooks)
            except Exception as error:
                seconds = None if hooks.should_stop() or until != Until() else _wait_after(member.failures)
                member.failures, member.has_failed = member.failures + 1, True
                member.since = member.since or datetime.now(UTC)
                _note_failed(member, error)
                hooks.on_failed(error, seconds)
                return seconds
            member.has_failed = report is not None and bool(report.failed)
            if member.metrics is not None:
                member.metrics.stopped()
            return None

    def _run(self, member: _Member, until: Until, hooks: GroupHooks) -> StreamReport | None:
        connector = member.opened
        if isinstance(connector, CdcError):
            raise connector
        own = hooks.of_run(connector)

        def note_stream() -> None:
            member.failures, member.has_failed, member.since = 0, False, None
            if own.on_stream is not None:
                own.on_stream()

        report = Service(connector, until, replace(own, on_stream=note_stream)).run()
        hooks.on_end(connector, report)
        return report

    def _rests(self, member: _Member, seconds: float, should_stop: Callable[[], bool]) -> bool:
        """Wait without running; False if the group ends meanwhile."""
        end = time.monotonic() + seconds
        with self._changed:
            self._running.discard(member)
            self._changed.notify_all()
            while self._running and not should_stop() and (left := end - time.monotonic()) > 0:
                self._changed.wait(min(left, _LOOK_SECONDS))
            if not self._running or should_stop():
                return False
            self._running.add(member)
            return True

    def _read_again(self, member: _Member) -> None:
        """Read the file of a connector that starts again, which may have been corrected."""
        if (waiting := _waiting_file(member)) is not None:
            waiting.clear()
        with self._changed:
            member.read(self._open_file)
            try:
                check_together(self._configs())
            except CdcError as error:
                member.opened = error
        if member.connector is not None and member.connector.name != member.name:
            forget_metrics(member.name, *self._address)
            member.name = member.connector.name
        self._count(member)

    def _count(self, member: _Member) -> None:
        """Serve the member's metrics, which say that it starts. Raises ConfigError as ``metrics_of``."""
        if member.connector is not None:
            member.metrics = meter(member.connector.context).metrics
        else:
            member.metrics = metrics_of(member.name, *self._address)
        member.metrics.starting()

    def _configs(self) -> dict[Path, ConnectorConfig]:
        return {member.path: member.connector.config for member in self._members if member.connector is not None}


def _wait_after(failures: int) -> float:
    return min(_FIRST_SECONDS * 2.0 ** min(failures, 30), _LONGEST_SECONDS)


def _note_failed(member: _Member, error: Exception) -> None:
    """Show the error in metrics and in ``wal2lake status``."""
    cause, remedy = (error.message, error.remedy) if isinstance(error, CdcError) else (type(error).__name__, "")
    if member.metrics is not None:
        member.metrics.stopped(cause)
    if (waiting := _waiting_file(member)) is not None and member.since is not None:
        waiting.write(WaitingRun(cause, remedy, member.since, member.failures))


def _waiting_file(member: _Member) -> WaitingFile | None:
    connector = member.connector
    return None if connector is None else WaitingFile(connector.config.state_path, connector.name, connector.slot)
