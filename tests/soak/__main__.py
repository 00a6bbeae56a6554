"""Kills, restarts, cuts and stalls at random times under random changes; at every stop the lake equals its source.

    python -m tests.soak --seconds 1800 [--seed N] [--server released17]

Prints the seed first: it decides what is done, and the times between. Exit code 1 if a lake table differs, an event is
in a changelog twice, a table is paused, or the run ends by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.soak.work import SIGNALS, TABLES, Load, Work
from tests.support.cluster import Cluster
from tests.support.lake import changelog_path, difference, doubled_events, lake_settings, write_properties
from tests.support.program import Program, Running
from tests.support.proxy import Proxy
from tests.support.spark_cluster import below, command_of
from tests.support.waits import patient, wait_until

_SETTLE_SECONDS = 180.0
_BETWEEN = (2.0, 12.0)  # seconds between two faults
_START_SECONDS = 60.0
_FAULTS_A_STOP = 6
_NEED_A_STREAM = ("cut", "stall", "fast restart", "immediate restart")
_STEADY = [TableId("public", name) for name in ("accounts", "entries")]


class Soak:
    """One lake, its source, and a run that is hit by faults."""

    def __init__(
        self,
        seed: int,
        server: Cluster,
        folder: Path,
        program: Program,
        proxy: Proxy,
        between: tuple[float, float] = _BETWEEN,
        faults_a_stop: int = _FAULTS_A_STOP,
        *,
        cold: bool = True,
    ) -> None:
        self.dice = random.Random(seed)
        self.between, self.faults_a_stop, self.cold = between, faults_a_stop, cold
        self.server, self.folder, self.program, self.proxy = server, folder, program, proxy
        self.database = server.database("soak")
        server.execute("postgres", f"alter database {self.database} set logical_decoding_work_mem = '64kB'")
        self.work, self.load = Work(server, self.database, seed), Load(server, self.database, seed)
        self.done: Counter[str] = Counter()
        self._closing = contextlib.ExitStack()
        self.work.setup()
        server.execute(self.database, f"create publication {self.database} for all tables")
        settings = {
            **lake_settings(folder),
            "wal2lake.freshness.seconds": "1",
            "wal2lake.streaming.transactions": self.dice.choice(["on", "off"]),
            "signal.data.collection": f"public.{SIGNALS}",
            "incremental.snapshot.chunk.size": "500",
            "database.port": proxy.port,
        }
        direct = server.properties(self.database, **settings)
        self.file = write_properties(folder / "soak.properties", direct)
        self.direct = write_properties(folder / "direct.properties", {**direct, "database.port": server.port})

    def __call__(self, seconds: float) -> list[str]:
        """Go on for some seconds; returns what is wrong."""
        end = time.monotonic() + seconds
        running = self._start()
        self.load.start()
        wrong: list[str] = []
        try:
            while not wrong and time.monotonic() < end:
                for _ in range(self.faults_a_stop):
                    running = self._between(running)
                    running = self._fault(running)
                wrong = self._settled(running)
                passed = seconds - (end - time.monotonic())
                result = "NOT EQUAL" if wrong else "equal"
                print(f"{passed:6.0f} s: {_listed(self.done)}; work {_listed(self.work.counted)}: {result}", flush=True)
            self.load.stopped.set()
            self.load.join(patient(30))
            wrong = wrong or self._settled(running)
            if running.process.poll() is None and (code := running.end(signal.SIGINT)):
                wrong.append(f"the run ended with {code}")
            if not wrong:
                wrong = [f"{table} has events twice" for table in _STEADY if self._is_doubled(table)]
            if wrong:
                print(running.said()[-5000:], file=sys.stderr)
        finally:
            self._closing.close()
            self.work.close()
        return wrong

    def _start(self) -> Running:
        return self._closing.enter_context(self.program.started("run", self.file, cold=self.cold, own_java=True))

    def _between(self, running: Running) -> Running:
        until = time.monotonic() + self.dice.uniform(*self.between)
        while time.monotonic() < until:
            self.work.step()
            if running.process.poll() is not None:
                raise SystemExit(f"the run ended by itself: {running.said()[-5000:]}")
        return running

    def _fault(self, running: Running) -> Running:
        faults: dict[str, Callable[[Running], Running]] = {
            "kill": self._killed,
            "kill Java": self._java_killed,
            "kill a worker": self._worker_killed,
            "stop": self._stopped,
            "fast restart": lambda run: self._server(run, crash=False),
            "immediate restart": lambda run: self._server(run, crash=True),
            "cut": self._cut,
            "stall": self._stalled,
            "terminate": self._terminated,
            "none": lambda run: run,
        }
        name = self.dice.choice(list(faults))
        self.done[name] += 1
        if name in _NEED_A_STREAM:
            self._await_stream(running)
        return faults[name](running)

    def _await_stream(self, running: Running) -> None:
        """Wait until a run streams: one that has not reached its server when it starts ends with the reason."""

        def is_decided() -> bool:
            return "streaming" in running.said() or running.process.poll() is not None

        wait_until(is_decided, _START_SECONDS, "a run that streams", 0.2)

    def _killed(self, running: Running) -> Running:
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.wait(patient(30))
        return self._start()

    def _java_killed(self, running: Running) -> Running:
        return self._part_killed(running, "org.apache.spark.deploy.SparkSubmit")

    def _worker_killed(self, running: Running) -> Running:
        return self._part_killed(running, "pyspark.daemon")

    def _part_killed(self, running: Running, name: str) -> Running:
        """Kill the last process below the run that bears a name: Spark's Python daemon is before its workers."""
        found = [pid for pid in below(running.process.pid) if name in command_of(pid)]
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(found[-1], signal.SIGKILL)
        return running

    def _stopped(self, running: Running) -> Running:
        code = running.end(signal.SIGINT, 180)
        # One that is stopped while it still starts ends with 1, but without a stack.
        if code and ("streaming" in running.said() or "Traceback" in running.said()):
            raise SystemExit(f"an orderly stop ended with {code}: {running.said()[-5000:]}")
        return self._start()

    def _server(self, running: Running, *, crash: bool) -> Running:
        self.server.restart(crash=crash)
        return running

    def _cut(self, running: Running) -> Running:
        self.proxy.cut()
        return running

    def _stalled(self, running: Running) -> Running:
        self.proxy.stall()
        time.sleep(self.dice.uniform(0.5, 8.0))
        self.proxy.resume()
        return running

    def _terminated(self, running: Running) -> Running:
        self.server.execute("postgres", "select pg_terminate_backend(pid) from pg_stat_replication")
        return running

    def _settled(self, running: Running) -> list[str]:
        """Compare while only the small transactions rest; what differs after a bounded time is wrong."""
        self.load.stopped.set()
        if self.load.is_alive():
            self.load.join(patient(30))
        deadline, wrong = time.monotonic() + _SETTLE_SECONDS, ["not compared"]
        while wrong and time.monotonic() < deadline and running.process.poll() is None:
            time.sleep(1.0)
            wrong = self._different()
        if running.process.poll() is not None:
            wrong.append("the run ended by itself")
        if not wrong:
            self.load = self.load.again()
            self.load.start()
        return wrong

    def _is_doubled(self, table: TableId) -> bool:
        # A table that had no change since its snapshot has no changelog.
        return changelog_path(load(self.direct), table).exists() and doubled_events(self.direct, table) > 0

    def _different(self) -> list[str]:
        lake = self.folder / "lake" / "test"
        try:
            self.work.connect()
            found = [f"{name}: {said}" for name, said in self.work.different(lake).items()]
            return found + [str(one) for one in difference(self.direct, _STEADY)]
        except Exception as error:  # a table that is not there yet, or is being replaced
            return [f"{type(error).__name__}: {error}"]


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))


def main() -> int:
    """Run; prints the seed first and the result last."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--seconds", type=float, default=600)
    asked.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    asked.add_argument("--server", default="debian15")
    given = asked.parse_args()
    print(f"seed {given.seed}, {given.seconds:g} s, {given.server}, tables {', '.join(TABLES)}", flush=True)
    folder, program = Path(tempfile.mkdtemp(prefix="w2l-soak-")), Program()
    server = Cluster.start(given.server, {"wal_sender_timeout": "6s"})
    wrong = ["it did not end"]
    try:
        with Proxy(server.host, server.port) as proxy:
            soak = Soak(given.seed, server, folder, program, proxy)
            wrong = soak(given.seconds)
            print(f"done: {_listed(soak.done)}; {_listed(soak.work.counted)}")
    finally:
        server.stop()
        program.close()
        if not wrong:
            shutil.rmtree(folder, ignore_errors=True)
    print("equal" if not wrong else f"WRONG (seed {given.seed}, kept in {folder}): {wrong}", flush=True)
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
