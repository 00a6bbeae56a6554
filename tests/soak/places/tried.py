"""One pair of phase and fault: a process is brought to its place, the fault happens, it is let go, all is compared."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.soak.places.dagster import DagsterRuns
from tests.soak.places.faults import Fault
from tests.soak.places.ground import Ground
from tests.soak.places.phases import CHANGE, SCHEMA, TABLES, Phase
from tests.support.cluster import Cluster
from tests.support.lake import changelog_path, difference, doubled_events, lake_settings, write_properties
from tests.support.processes import state
from tests.support.program import Running
from tests.support.proxy import Proxy
from tests.support.spark_cluster import below
from tests.support.standby import is_synchronized
from tests.support.waits import patient, repeated, wait_until

_SYNC_SECONDS, _SYNC_TIMES = 3.0, 6


class Tried:
    """One pair. ``held`` are the processes that were stopped, ``is_over``: the fault is, for what ends with it."""

    def __init__(self, ground: Ground, folder: Path, proxy: Proxy, phase: Phase, fault: Fault) -> None:
        self.ground, self.folder, self.proxy, self.phase, self.fault = ground, folder, proxy, phase, fault
        self.server = ground.server
        self.database = self.server.database("places")
        self.held: list[int] = []
        self.is_over = threading.Event()
        self.is_over.set()
        self.said = ""
        self.server.execute(self.database, SCHEMA)
        self._settings = {
            **lake_settings(folder),
            "wal2lake.snapshot.rows.per.partition": "1000",
            "wal2lake.freshness.seconds": "0.5",
            "signal.data.collection": "public.signals",
            "incremental.snapshot.chunk.size": "900",
            "table.include.list": "public.big,public.small",
            **ground.settings,
            **phase.settings,
            **fault.settings,
        }
        self.file = self._written("p.properties", **{"database.port": proxy.port})
        self.direct = self._written("d.properties", **{"database.hostname": self.server.host})

    def __call__(self) -> list[str]:
        """Do it; returns what is wrong."""
        self._prepare()
        wrong = self._in_dagster() if self.fault.needs == "dagster" else self._by_command()
        wrong += [f"a stack: {self.said[-3000:]}"] if "Traceback" in self.said else []
        wrong += [f"{table} has events twice" for table in TABLES if self._is_doubled(table)]
        self.server.drop_database(self.database)
        return wrong

    def processes(self, running: Running) -> list[int]:
        """The process, and all that work for it."""
        cluster = self.ground.cluster
        return [running.process.pid, *below(running.process.pid), *(cluster.below() if cluster else [])]

    def later(self, seconds: float, ends: Callable[[], None]) -> None:
        """The fault lasts for some seconds, and then ``ends``."""

        def end() -> None:
            ends()
            self.is_over.set()

        self.is_over.clear()
        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()

    def go_on_at(self, server: Cluster) -> None:
        """Another server has taken over."""
        self.server = server
        self.proxy.lead_to(server.host, server.port)
        self.direct = self._written("d.properties", **{"database.hostname": server.host})

    def _written(self, name: str, **more: object) -> Path:
        # The standby's copy of the slot, and the database, bear the primary's names.
        return write_properties(self.folder / name, self.server.properties(self.database, **{**self._settings, **more}))

    def _prepare(self) -> None:
        if self.phase.before is None:
            return
        self._run("run", "--until-idle", "0.3")
        for text in self.phase.before:
            self.server.execute(self.database, text)
        for number in range(self.phase.files):
            self.server.execute(self.database, f"insert into small values ({number} + 2000, 'f')")
            self._run("run", "--until-idle", "0.2")
        if self.phase.before:
            self._run("run", "--until-idle", "0.3")
        if self.ground.standby is not None:
            self._synchronize(self.ground.standby)

    def _synchronize(self, standby: Cluster) -> None:
        """Move the slot on until the standby keeps its copy, which begins at a later position."""
        for number in range(_SYNC_TIMES):
            self.server.execute("postgres", "select pg_log_standby_snapshot()")
            self.server.execute(self.database, f"insert into small values ({number} + 3000, 's')")
            self._run("run", "--until-idle", "0.3")
            with contextlib.suppress(AssertionError):
                wait_until(lambda: is_synchronized(standby, self.database), _SYNC_SECONDS, "a slot", 0.2)
                return
        raise SystemExit(f"the slot was not synchronized: {standby.log()[-2000:]}")

    def _run(self, command: str, *arguments: str) -> None:
        done = self.ground.program.run(command, self.file, *arguments)
        if done.returncode:
            raise SystemExit(f"{command} ended with {done.returncode}: {done.stderr[-3000:]}")

    def _by_command(self) -> list[str]:
        command, *arguments = self.phase.command
        armed = {"WAL2LAKE_FAILPOINT": self._place()}
        with self.ground.program.started(command, self.file, *arguments, cold=True, **armed) as running:
            for text in self.phase.meanwhile:
                running.wait_for("streaming", 120)
                self.server.execute(self.database, text)
            self._await_place(running)
            self.fault.happens(self, running)
            with self._letting_go(running):
                wrong = self._after_run(running) if self.phase.is_run else self._after_command(running)
            self.said = running.said()
        return wrong

    def _in_dagster(self) -> list[str]:
        runs = DagsterRuns(self.folder, self.file)
        for text in self.phase.meanwhile:
            self.server.execute(self.database, text)
        with runs.started(self.phase, WAL2LAKE_FAILPOINT=self._place()) as running:
            self._await_place(running)
            below_it = self.processes(running)
            self.fault.happens(self, running)
            with self._letting_go(running, below_it):
                running.end(seconds=120)
                runs.again(self.phase)
                return self._in_the_end()

    def _place(self) -> str:
        return f"{self.phase.place}{'' if ':' in self.phase.place else ':1'}:stop"

    def _await_place(self, running: Running) -> None:
        self.held = wait_until(lambda: self._stopped(running), 120, f"{self.phase.place}: {running.said()[-2000:]}")

    def _after_run(self, running: Running) -> list[str]:
        self.server.execute(self.database, CHANGE.format(n=11))
        self._await_equal(running)
        self._release()
        self.server.execute(self.database, CHANGE.format(n=12))
        self._await_equal(running)
        code = running.end(signal.SIGINT, 90)
        return [f"the run ended with {code}: {running.said()[-3000:]}"] if code else []

    def _after_command(self, running: Running) -> list[str]:
        code = running.end(seconds=120)
        command, *arguments = self.phase.command
        if code not in (0, 1, -signal.SIGKILL):
            return [f"{command} ended with {code}"]
        if not self.is_over.wait(patient(60)):
            return ["the fault is not over"]
        if code:
            self._run(command, *arguments)
        return self._in_the_end()

    def _in_the_end(self) -> list[str]:
        self._run("run", "--until-idle", "0.3")
        self._release()
        self._run("run", "--until-idle", "0.3")
        return [str(one) for one in difference(self.direct, TABLES)]

    def _await_equal(self, running: Running) -> None:
        def is_equal() -> bool:
            if running.process.poll() is not None:
                raise SystemExit(f"the run ended by itself: {running.said()[-5000:]}")
            return difference(self.direct, TABLES) == []

        wait_until(is_equal, 60, f"an equal lake; {running.said()[-3000:]}", 0.5)

    def _is_doubled(self, table: TableId) -> bool:
        return changelog_path(load(self.direct), table).exists() and doubled_events(self.direct, table) > 0

    def _stopped(self, running: Running) -> list[int]:
        if running.process.poll() is not None:
            raise SystemExit(f"it ended before it came there: {running.said()[-5000:]}")
        return [pid for pid in self.processes(running) if state(pid) == "T"]

    def _release(self) -> None:
        _go_on(self.held)

    @contextlib.contextmanager
    def _letting_go(self, running: Running, more: list[int] | None = None) -> Iterator[None]:
        """Continue whatever reaches the place again, until the end; workers that were stopped only if they do not hold.

        ``more``: processes that are not below it any more, once it has ended.
        """
        kept = {pid for pid in self.held if self.fault.holds and pid != running.process.pid}

        def let_go() -> None:
            _go_on([pid for pid in {*self.processes(running), *(more or [])} if pid not in kept])

        try:
            with repeated(let_go, 0.05):
                yield
        finally:
            self._release()


def _go_on(pids: list[int]) -> None:
    for pid in pids:
        if state(pid) == "T":
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
