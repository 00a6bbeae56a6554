"""The ``wal2lake`` command as a user runs it, in a process of its own, that can be killed.

Starting and warming a Java process for every run would make a test of many runs last for minutes, so runs borrow one:
PySpark finds it by ``PYSPARK_GATEWAY_PORT``. What is killed is the program; Spark's context ends with every run but
one that leaves it idle (``lent_context``). Their imports are borrowed, too (``forked``). Runs with ``own_java=True``
borrow their imports only: beside another run, or where no Java is to be found. Runs with ``cold=True`` borrow nothing
and start as users' runs do.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import pytest

from tests.support.forked import Forked, ForkServer
from tests.support.spark import COMMAND_SETTINGS
from tests.support.waits import patient, wait_until

SECONDS = 540
_PROGRAM = Path(sys.executable).parent / "wal2lake"


class Program:
    """Runs the command line. ``spark_log`` holds what the borrowed Java process has written, ``settings`` are Spark's
    beside the usual ones. ``forks``: another's, which then is not ended with it.
    """

    def __init__(self, settings: dict[str, str] | None = None, forks: ForkServer | None = None) -> None:
        self._settings = settings or {}
        self.spark_log = Path(tempfile.mkdtemp(prefix="w2l-spark-")) / "spark.log"
        self._gateway: Any = None
        self._forks = forks
        self._is_borrowed = forks is not None

    def run(
        self,
        command: str,
        properties: Path,
        *arguments: str,
        cold: bool = False,
        own_java: bool = False,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end, at most ``SECONDS``."""
        order = [str(_PROGRAM), command, str(properties), *arguments]
        with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
            process = self._start(order, environment, stdout, stderr, cold=cold, own_java=own_java)
            try:
                code = process.wait(SECONDS)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait(patient(20))
                if not cold and not own_java:
                    self._rest(process.returncode)
            stdout.seek(0)
            stderr.seek(0)
            return subprocess.CompletedProcess(order, code, stdout.read(), stderr.read())

    def stream(self, properties: Path, failpoint: str | None = None, **more: Any) -> subprocess.CompletedProcess[str]:
        """``run`` until everything is merged; ends with SIGKILL at ``failpoint``."""
        armed = {"WAL2LAKE_FAILPOINT": failpoint} if failpoint else {}
        # However short the silence is, the run goes on until it has passed the end of the server's WAL.
        return self.run("run", properties, "--until-idle", "0.2", "--max-seconds", "1500", **armed, **more)

    def killed_at(self, failpoint: str, properties: Path, **more: Any) -> None:
        """``stream``, which must reach the failpoint."""
        done = self.stream(properties, failpoint, **more)
        said = f"{done.stdout}{done.stderr[-3000:]}"
        assert done.returncode == -signal.SIGKILL, f"{failpoint} was not reached:\n{said}"

    def paused(self, properties: Path) -> dict[str, dict[str, Any]]:
        """The tables that ``status`` lists as paused, with what it says of each."""
        done = self.run("status", properties, "--json")
        assert done.returncode == 0, done.stderr
        return {one["table"]: one["paused"] for one in json.loads(done.stdout)["tables"] if one.get("paused")}

    @contextmanager
    def started(
        self,
        command: str,
        properties: Path,
        *arguments: str,
        cold: bool = False,
        own_java: bool = False,
        **environment: str,
    ) -> Iterator[Running]:
        """A run in the background, killed at the end where it still runs."""
        with tempfile.TemporaryFile() as output:
            order = [str(_PROGRAM), command, str(properties), *arguments]
            process = self._start(order, environment, output, output, cold=cold, own_java=own_java)
            running = Running(process, output)
            try:
                yield running
            except BaseException:
                print(f"{command} has said:\n{running.said()[-3000:]}")  # pytest shows it with the failure
                raise
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait(patient(20))
                if not cold and not own_java:
                    self._rest(process.returncode)

    @property
    def forks(self) -> ForkServer:
        """What runs borrow their imports from."""
        if self._forks is None:
            self._forks = ForkServer()
        return self._forks

    @property
    def context(self) -> str | None:
        """The id of the Spark context that the next run finds, if any."""
        if self._gateway is None:
            return None
        left = self._classes[0].getActive()
        return str(left.get().applicationId()) if left.isDefined() else None

    def close(self) -> None:
        """End what was borrowed."""
        if self._forks is not None and not self._is_borrowed:
            self._forks.close()
            self._forks = None
        if self._gateway is not None:
            self._gateway.proc.stdin.close()
            try:
                self._gateway.proc.wait(patient(30))
            except subprocess.TimeoutExpired:
                self._gateway.proc.kill()
            self._gateway = None
            self.__dict__.pop("_classes", None)

    def _start(
        self, order: list[str], more: dict[str, str], stdout: IO[Any], stderr: IO[Any], *, cold: bool, own_java: bool
    ) -> subprocess.Popen[bytes] | Forked:
        environment = {key: value for key, value in os.environ.items() if key != "WAL2LAKE_FAILPOINT"}
        if "WAL2LAKE_FAILPOINT" in more:
            environment["WAL2LAKE_FAILPOINT_HITS"] = str(self.spark_log.parent / f"hits-{uuid.uuid4()}")
        if cold:
            return subprocess.Popen(order, env={**environment, **more}, stdout=stdout, stderr=stderr)
        environment["PYSPARK_PYTHON"] = str(self.forks.python)
        if not own_java:
            parameters = self._java().gateway_parameters
            environment["PYSPARK_GATEWAY_PORT"] = str(parameters.port)
            environment["PYSPARK_GATEWAY_SECRET"] = str(parameters.auth_token)
        return self.forks.start(order, {**environment, **more}, stdout, stderr)

    def _java(self) -> Any:
        if self._gateway is None:
            from pyspark.conf import SparkConf
            from pyspark.java_gateway import launch_gateway

            from cdc_core.spark.session import spark_conf

            conf = SparkConf(loadDefaults=False)
            for key, value in spark_conf({**COMMAND_SETTINGS, **self._settings}).items():
                conf.set(key, value)
            with self.spark_log.open("wb") as log:
                self._gateway = launch_gateway(conf, {"stdout": log, "stderr": log})
        return self._gateway

    def _rest(self, code: int | None) -> None:
        """Stop the context that the last run left behind, which ends its tasks and its Python workers too.

        A run that was killed while its session started leaves one that is still being made: it is waited for. With a
        Java process of its own nothing would be left of it, and nothing must be here. So the next run takes only a
        context that has nothing to do, of a run that ended well.
        """
        if self._gateway is None:
            return
        context, being_made, sessions, logs = self._classes
        wait_until(lambda: not being_made.get(context).isDefined(), 60, "the end of Spark's start")
        left = context.getActive()
        if left.isDefined():
            if code != 0 or _has_work(left.get()):
                left.get().stop()
            else:
                _forget_listener(left.get().listenerBus())
        sessions.clearDefaultSession()
        logs.clearCache()

    @cached_property
    def _classes(self) -> tuple[Any, Any, Any, Any]:
        """Spark's and Delta's, which py4j would look for name by name after each run."""
        jvm = self._gateway.jvm
        companion = jvm.java.lang.Class.forName("org.apache.spark.SparkContext$")
        being_made = companion.getDeclaredField("contextBeingConstructed")
        being_made.setAccessible(True)
        context = companion.getField("MODULE$").get(None)
        spark = jvm.org.apache.spark
        return context, being_made, spark.sql.classic.SparkSession, spark.sql.delta.DeltaLog


def _has_work(context: Any) -> bool:
    """Whether a job of it is under way, or a task of one that was cancelled."""
    tasks = context.taskScheduler().runningTasksByExecutors().get("driver")
    return not context.dagScheduler().activeJobs().isEmpty() or (tasks.isDefined() and tasks.get() > 0)


def _forget_listener(bus: Any) -> None:
    """Remove what an ended session has left: it would look at every event of the later ones, too."""
    for listener in bus.listeners():
        if listener.getClass().getSimpleName() == "SQLAppStatusListener":
            bus.removeListener(listener)


class Running:
    """A run in the background."""

    def __init__(self, process: subprocess.Popen[bytes] | Forked, output: Any) -> None:
        self.process = process
        self._output = output

    def said(self) -> str:
        """Everything it has printed so far."""
        # At a place of its own: the position of the file is the run's, too, which would write where a reader has moved
        # it to. (Python's mode "a" is no append mode for a temporary file.)
        output = self._output.fileno()
        return os.pread(output, os.fstat(output).st_size, 0).decode(errors="replace")

    def wait_for(self, text: str, seconds: float = 90) -> None:
        """Wait until it has printed ``text``; AssertionError when it ends first or takes too long."""
        wait_until(lambda: text in self.said() or self.process.poll() is not None, seconds, f"output {text!r}")
        assert text in self.said(), self.said()[-3000:]

    def end(self, sign: int | None = None, seconds: float = 90) -> int:
        """Send a signal, wait for the end, and return the exit code. ``seconds`` are a bound as of ``wait_until``."""
        if sign is not None:
            self.process.send_signal(sign)
        return self.process.wait(patient(seconds))


_program: list[Program] = []


@pytest.fixture(scope="session")
def program() -> Iterator[Program]:
    """One for the whole test run, whichever folder asks first."""
    if not _program:
        _program.append(Program())
    yield _program[0]
    _program[0].close()
