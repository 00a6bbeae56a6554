"""Kills, restarts, cuts and stalls at random times under random changes; at every stop the lake equals its source.

    python -m tests.soak --seconds 1800 [--seed N] [--server released17] [--workers 2] [--often overtaken]

Prints the seed first: it decides what is done, and the times between. Each fault comes once before one comes again;
that of ``--often`` after each other one, too.
Exit code 1 if a lake table differs, an event is in a changelog twice, a table is paused, or the run ends by itself.
With ``--workers`` the runs use a Spark standalone cluster with speculation, whose workers are lost and come back.
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
from dataclasses import dataclass
from pathlib import Path

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.soak.work import LARGE_ROWS, SIGNALS, TABLES, Load, Work
from tests.support.cluster import Cluster
from tests.support.lake import changelog_path, difference, doubled_events, lake_settings, write_properties
from tests.support.program import Program, Running
from tests.support.proxy import Proxy
from tests.support.spark_cluster import SparkCluster, below, command_of
from tests.support.waits import patient, wait_until

_SETTLE_SECONDS = 180.0
_START_SECONDS = 60.0
_NEED_A_STREAM = ("cut", "stall", "fast restart", "immediate restart", "overtaken", "maintenance")
_END_SESSIONS = """
select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and application_name like 'wal2lake%%'
"""
_SLOT_USERS = """
select active_pid, backend_start, application_name, state, wait_event, now() from pg_replication_slots
left join pg_stat_activity on pid = active_pid where database = %s
"""
_STEADY = [TableId("public", name) for name in ("accounts", "entries")]


@dataclass(frozen=True)
class Pace:
    """``between``: seconds from one fault to the next. ``left_out``: faults that do not come.

    ``often``: a fault that comes after each other one, too.
    Runs with ``own_java`` start as users' do; the others borrow a Java process that no fault may end.
    ``large_rows``: of a large transaction; above some hundred, it is larger than the server's memory for decoding it.
    """

    between: tuple[float, float] = (2.0, 12.0)
    faults_a_stop: int = 6
    stall_seconds: float = 8.0
    left_out: frozenset[str] = frozenset()
    own_java: bool = True
    often: str = ""
    large_rows: int = LARGE_ROWS


# What needs a Java process of the run's own, and what needs a cluster.
OF_JAVA = frozenset({"kill Java", "kill a worker", "overtaken", "maintenance"})
OF_CLUSTERS = frozenset({"lose a worker"})
_SPECULATION = {
    "wal2lake.spark.spark.speculation": "true",
    "wal2lake.spark.spark.speculation.multiplier": "1.1",
    "wal2lake.spark.spark.speculation.quantile": "0.1",
    "wal2lake.spark.spark.speculation.minTaskRuntime": "50ms",
}


class Soak:
    """One lake, its source, and a run that is hit by faults."""

    def __init__(
        self,
        seed: int,
        server: Cluster,
        folder: Path,
        program: Program,
        proxy: Proxy,
        pace: Pace | None = None,
        cluster: SparkCluster | None = None,
    ) -> None:
        self.dice, self.pace, self.cluster = random.Random(seed), pace or Pace(), cluster
        self._left_out = self.pace.left_out | (frozenset() if cluster else OF_CLUSTERS)
        self.server, self.folder, self.program, self.proxy = server, folder, program, proxy
        self.database = server.database("soak")
        server.execute("postgres", f"alter database {self.database} set logical_decoding_work_mem = '64kB'")
        self.work = Work(server, self.database, seed, self.pace.large_rows)
        self.load = Load(server, self.database, seed)
        self.done: Counter[str] = Counter()
        self._deck: list[str] = []
        self._present = contextlib.ExitStack()
        self.work.setup()
        server.execute(self.database, f"create publication {self.database} for all tables")
        settings = {
            **lake_settings(folder),
            "wal2lake.freshness.seconds": "1",
            "wal2lake.streaming.transactions": self.dice.choice(["on", "off"]),
            "signal.data.collection": f"public.{SIGNALS}",
            "incremental.snapshot.chunk.size": "500",
            "database.port": proxy.port,
            **({**cluster.settings, **_SPECULATION} if cluster else {}),
        }
        direct = server.properties(self.database, **settings)
        self.file = write_properties(folder / "soak.properties", direct)
        self.direct = write_properties(folder / "direct.properties", {**direct, "database.port": server.port})

    def __call__(self, seconds: float) -> list[str]:
        """Go on for some seconds, at least to the first stop; returns what is wrong."""
        end = time.monotonic() + seconds
        running = self._start()
        self.load.start()
        wrong: list[str] = []
        try:
            while not wrong and (not self.done or time.monotonic() < end):
                for _ in range(self.pace.faults_a_stop):
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
            self._present.close()
            self.work.close()
        return wrong

    def _start(self) -> Running:
        """Start a run; the one before it, if any, is left behind."""
        self._present.close()
        return self._started(self._present)

    def _started(self, until: contextlib.ExitStack) -> Running:
        own = self.pace.own_java
        return until.enter_context(self.program.started("run", self.file, cold=own, own_java=own))

    def _between(self, running: Running) -> Running:
        until = time.monotonic() + self.dice.uniform(*self.pace.between)
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
            "lose a worker": self._worker_lost,
            "stop": self._stopped,
            "fast restart": lambda run: self._server(run, crash=False),
            "immediate restart": lambda run: self._server(run, crash=True),
            "cut": self._cut,
            "stall": self._stalled,
            "terminate": self._terminated,
            "overtaken": self._overtaken,
            "maintenance": self._maintained,
            "none": lambda run: run,
        }
        if not self._deck:
            self._deck = sorted(faults.keys() - self._left_out)
            self.dice.shuffle(self._deck)
            if self.pace.often:
                self._deck = [each for name in self._deck for each in (self.pace.often, name)]
        name = self._deck.pop()
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
        if self.cluster is None:
            return self._part_killed(running, "pyspark.daemon")
        _signal(self.cluster.python_of(self.cluster.newest)[-1:], signal.SIGKILL)
        return running

    def _worker_lost(self, running: Running) -> Running:
        """A machine of the cluster is gone with its executor, and another one joins."""
        assert self.cluster is not None
        self.cluster.kill_worker(self.cluster.newest)
        self.cluster.add_worker()
        return running

    def _part_killed(self, running: Running, name: str) -> Running:
        """Kill the last process below the run that bears a name: Spark's Python daemon is before its workers."""
        found = [pid for pid in below(running.process.pid) if name in command_of(pid)]
        _signal(found[-1:], signal.SIGKILL)
        return running

    def _stopped(self, running: Running) -> Running:
        code = running.end(signal.SIGINT, 180)
        # One that is stopped while it starts ends with 1; so does one whose table waits to be read again, and names it.
        said = running.said()
        if code and ("Traceback" in said or ("streaming" in said and "is not merged: " not in said)):
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
        time.sleep(self.dice.uniform(0.5, self.pace.stall_seconds))
        self.proxy.resume()
        return running

    def _terminated(self, running: Running) -> Running:
        self.server.execute("postgres", "select pg_terminate_backend(pid) from pg_stat_replication")
        return running

    def _overtaken(self, running: Running) -> Running:
        """Stop everything of a run; while it is stopped another one takes over; it is let go, and one of them ends.

        Nearly always that is the one that was stopped. But a worker of it may have been about to commit, and does so
        now; the other run then begins anew, for which it gives its claim up, and the former may get it.
        """
        stopped = [running.process.pid, *below(running.process.pid)]
        _signal(stopped, signal.SIGSTOP)
        former = self._present.pop_all()
        with contextlib.ExitStack() as leaving:
            leaving.push(former)
            # What a failover or an administrator does: the sessions of the stopped run would hold the claim for ever.
            # A walsender that cannot send is ended by a second request only (postgres/sessions).
            sessions = (_END_SESSIONS, [self.database])
            wait_until(lambda: not self.server.execute("postgres", *sessions), 10, "the end of its sessions")
            taking = self._started(self._present)
            self._await_stream(taking)
            if taking.process.poll() is not None:
                users = self.server.execute("postgres", _SLOT_USERS, [self.database])
                raise SystemExit(f"the run that was to take over ended: {taking.said()[-5000:]}; the slot: {users}")
            time.sleep(self.dice.uniform(0.5, 3.0))
            _signal(stopped, signal.SIGCONT)
            both = (running, taking)
            ended = wait_until(lambda: [run for run in both if run.process.poll() is not None], 90, "the end of one")
            if len(ended) > 1 or ended[0].end() != 1 or any("Traceback" in run.said() for run in both):
                said = "\n".join(f"{run.process.poll()}: {run.said()[-3000:]}" for run in both)
                raise SystemExit(f"of a run and the one that took over: {said}")
            if ended == [taking]:
                print(f"the run that had been stopped went on; the other one: {taking.said()[-600:]}", flush=True)
                self._present.close()
                self._present = former.pop_all()
                return running
        return taking

    def _maintained(self, running: Running) -> Running:
        """Compaction and clean-up of all tables by another process, beside the rounds."""
        done = self.program.run("maintain", self.file, own_java=True)
        if done.returncode:
            raise SystemExit(f"maintain ended with {done.returncode}: {(done.stdout + done.stderr)[-5000:]}")
        return running

    def _settled(self, running: Running) -> list[str]:
        """Compare while only the small transactions rest; what differs after a bounded time is wrong."""
        self.load.stopped.set()
        if self.load.is_alive():
            self.load.join(patient(30))
        deadline, wrong = time.monotonic() + patient(_SETTLE_SECONDS), ["not compared"]
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


def _signal(pids: list[int], sign: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sign)


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))


def main() -> int:
    """Run; prints the seed first and the result last."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--seconds", type=float, default=600)
    asked.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    asked.add_argument("--server", default="debian15")
    asked.add_argument("--workers", type=int, default=0)
    asked.add_argument("--often", default="")
    given = asked.parse_args()
    spark = f"{given.workers} workers" if given.workers else "one process"
    print(f"seed {given.seed}, {given.seconds:g} s, {given.server}, {spark}, tables {', '.join(TABLES)}", flush=True)
    folder, program = Path(tempfile.mkdtemp(prefix="w2l-soak-")), Program()
    server = Cluster.start(given.server, {"wal_sender_timeout": "6s"})
    wrong = ["it did not end"]
    try:
        with contextlib.ExitStack() as closing:
            proxy = closing.enter_context(Proxy(server.host, server.port))
            cluster = None
            if given.workers:
                cluster = closing.enter_context(SparkCluster(folder / "cluster", given.workers))
            soak = Soak(given.seed, server, folder, program, proxy, Pace(often=given.often), cluster)
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
