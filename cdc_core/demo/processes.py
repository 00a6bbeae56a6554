"""Dagster's web server and daemon as child processes, and the GraphQL queries of the demo."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cdc_core.dagster_home import INSTANCE, shipped
from cdc_core.errors import TransientError

_START_SECONDS = 600.0
_STOP_SECONDS = 30.0
_REQUEST_SECONDS = 30.0
_RUNS_SECONDS = 60.0
_PAUSE_SECONDS = 0.5
_PORTS = (15_000, 32_000)
_UNFINISHED = (
    "{ runsOrError(filter: {statuses: [QUEUED, NOT_STARTED, STARTING, STARTED, CANCELING]})"
    " { ... on Runs { results { runId } } } }"
)
_CANCEL = (
    "mutation($ids: [String!]!, $how: TerminateRunPolicy!) { terminateRuns(runIds: $ids, terminatePolicy: $how)"
    " { __typename } }"
)


def free_port() -> int:
    """Return a port of the loopback interface that is not in use.

    It is below those that the system gives to connections: one of these may be taken again before a server listens
    there, or while it is restarted.
    """
    dice = random.SystemRandom()
    for port in (*(dice.randrange(*_PORTS) for _ in range(100)), 0):
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise TransientError("No port of the loopback interface is free.")


class DagsterProcesses:
    """Web server and daemon on one DAGSTER_HOME, each in a separate process group. A context manager.

    ``before_daemon`` is called once the web server answers: what it creates exists when the daemon starts. The daemon
    checks for backfills only twice a minute.
    """

    def __init__(
        self,
        home: Path,
        connectors: Path,
        logs: Path,
        module: str = "wal2lake.pipelines.definitions",
        environment: Mapping[str, str] | None = None,
        before_daemon: Callable[[DagsterProcesses], None] | None = None,
    ) -> None:
        self._home, self._logs = home.resolve(), logs.resolve()
        self._connectors = connectors.resolve()
        self._module = module
        self._environment = dict(environment or {})
        self._before_daemon = before_daemon
        self._children: list[subprocess.Popen[bytes]] = []
        self.port = free_port()

    @property
    def url(self) -> str:
        """The URL of the UI."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def processes(self) -> tuple[subprocess.Popen[bytes], ...]:
        """Web server and daemon, each the last one that was started."""
        return tuple(self._children)

    def start_daemon(self) -> None:
        """Start the daemon, also again after it has ended."""
        self._start("dagster-daemon", "run")

    def __enter__(self) -> DagsterProcesses:
        self._home.mkdir(parents=True, exist_ok=True)
        self._logs.mkdir(parents=True, exist_ok=True)
        (self._home / INSTANCE).write_text(shipped(INSTANCE), encoding="utf-8")
        try:
            self._start("dagster-webserver", "-h", "127.0.0.1", "-p", str(self.port))
            # One after the other: the first creates Dagster's database, and two at once would conflict.
            self._wait_until_up()
            self._end_leftover_runs()
            if self._before_daemon is not None:
                self._before_daemon(self)
            self.start_daemon()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End both and everything they started; active runs are requested to end first."""
        if self._children and self._children[0].poll() is None:
            with suppress(TransientError):
                self.end_runs()
        for sign, seconds in ((signal.SIGTERM, _STOP_SECONDS), (signal.SIGKILL, 10.0)):
            for child in self._children:
                if child.poll() is None or sign is signal.SIGKILL:
                    _signal_group(child.pid, sign)
            deadline = time.monotonic() + seconds
            for child in self._children:
                try:
                    child.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    continue
        self._children.clear()

    def end_runs(self, seconds: float = _RUNS_SECONDS) -> bool:
        """Request every run to end and wait for that; False if one was still active after ``seconds``.

        A run of the stream lasts an hour, but ends within a round on request.
        """
        deadline = time.monotonic() + seconds
        asked: set[str] = set()
        while unfinished := self._unfinished():
            if time.monotonic() > deadline:
                return False
            if new := sorted(set(unfinished) - asked):
                self.query(_CANCEL, {"ids": new, "how": "SAFE_TERMINATE"})
                asked.update(new)
            time.sleep(_PAUSE_SECONDS)
        return True

    def query(self, text: str, variables: dict[str, Any] | None = None) -> dict[str, Any]:
        """Query the web server. Raises TransientError if it does not answer or returns an error."""
        body = json.dumps({"query": text, "variables": variables or {}}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=_REQUEST_SECONDS) as response:
                answer = json.load(response)
        except (OSError, ValueError) as error:
            raise TransientError(f"Dagster's web server did not answer: {type(error).__name__}.") from None
        if answer.get("errors"):
            raise TransientError(f"Dagster's web server refused: {answer['errors'][0].get('message', '')[:300]}")
        data: dict[str, Any] = answer["data"]
        return data

    def _start(self, program: str, *arguments: str) -> None:
        executable = Path(sys.executable).parent / program
        environment = {
            **os.environ,
            "DAGSTER_HOME": str(self._home),
            "WAL2LAKE_CONNECTORS": str(self._connectors),
            "PATH": f"{executable.parent}{os.pathsep}{os.environ.get('PATH', '')}",
            **self._environment,
        }
        with (self._logs / f"{program}.log").open("ab") as log:
            self._children.append(
                subprocess.Popen(
                    [str(executable), *arguments, "-m", self._module],
                    env=environment,
                    cwd=self._home,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _end_leftover_runs(self) -> None:
        """End runs of an earlier demo in Dagster's database: their processes ended with it."""
        found = self._unfinished()
        if found:
            self.query(_CANCEL, {"ids": found, "how": "MARK_AS_CANCELED_IMMEDIATELY"})

    def _unfinished(self) -> list[str]:
        return [run["runId"] for run in self.query(_UNFINISHED)["runsOrError"].get("results", [])]

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            for child in self._children:
                if child.poll() is not None:
                    raise TransientError(f"A Dagster process ended with {child.returncode}; see {self._logs}.")
            try:
                self.query("{ version }")
                return
            except TransientError:
                time.sleep(_PAUSE_SECONDS)
        raise TransientError(f"Dagster did not start within {_START_SECONDS:.0f} s; see {self._logs}.")


def _signal_group(pid: int, sign: signal.Signals) -> None:
    try:
        os.killpg(pid, sign)
    except ProcessLookupError:
        return
