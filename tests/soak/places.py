"""Faults at a place: the process that reaches it is stopped there, the fault happens, and it is let go.

    python -m tests.soak.places [--phase "first snapshot"] [--fault "kill Java"] [--seconds 1800]

What the soak meets by chance is here done once for each pair of phase and fault, each with a lake of its own. A run
goes on by itself; a command may end with a sentence and is then run again. At the end the lake equals the source, each
change is in its changelog once, and nothing that was printed is a stack. Exit code 1 if that is not so.

Where a worker is stopped while its Java process is killed, it is let go only when the lake is equal: it outlives the
attempt to which it belongs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import deltalake

from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import changelog_path, difference, doubled_events, lake_path, lake_settings, write_properties
from tests.support.program import Program, Running
from tests.support.proxy import Proxy
from tests.support.spark_cluster import below, command_of
from tests.support.waits import repeated, wait_until

BIG, SMALL = TableId("public", "big"), TableId("public", "small")
TABLES = [BIG, SMALL]
SCHEMA = """
create table big (id int primary key, v text);
create table small (id int primary key, v text);
create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048));
insert into big select g, repeat('v', 40) from generate_series(1, 4000) g;
insert into small select g, 'v' from generate_series(1, 10) g;
"""
_CHANGE = "update big set v = v || 'c' where id % 50 = {n}; insert into small values ({n} + 1000, 'c')"
_ASK = """
insert into signals values (gen_random_uuid()::text, 'execute-snapshot', '{"data-collections": ["public.big"]}')
"""
_REFUSED = "insert into small select g, 'refused' from generate_series(5000, 5020) g"


@dataclass(frozen=True)
class Phase:
    """``place``: where a process stops. ``before`` is run when the lake has been filled, None: the lake is empty.

    ``command``: a run, or what is run beside none. ``meanwhile``: statements that lead a run to the place.
    """

    place: str
    before: tuple[str, ...] | None = ()
    command: tuple[str, ...] = ("run",)
    meanwhile: tuple[str, ...] = ()
    files: int = 0
    settings: dict[str, str] = field(default_factory=dict)


_ONE = _CHANGE.format(n=7)
PHASES: dict[str, Phase] = {
    "first snapshot": Phase(failpoints.AFTER_SNAPSHOT_RANGE, None),
    "first snapshot, commit": Phase(failpoints.BEFORE_SNAPSHOT_COMMIT, None),
    "handover": Phase(f"{failpoints.AFTER_SNAPSHOT_COMMIT}:3", None),
    "incremental chunk": Phase(failpoints.DURING_CHUNK_APPLY, meanwhile=(_ONE, _ASK)),
    "re-read": Phase(
        failpoints.BEFORE_SNAPSHOT_COMMIT,
        meanwhile=(_ONE, "alter table big alter v type varchar(90) using left(v, 20)", _CHANGE.format(n=8)),
    ),
    "re-read, range": Phase(
        failpoints.AFTER_SNAPSHOT_RANGE,
        meanwhile=(_ONE, "alter table big alter v type varchar(90) using left(v, 20)", _CHANGE.format(n=8)),
    ),
    "replay": Phase(
        failpoints.DURING_MERGE,
        (_REFUSED, "update small set v = v || '!' where id > 5010"),
        ("replay", "public.small", "--accept-all"),
        settings={"wal2lake.quality.rule.known": "public.small: after.v <> 'refused'"},
    ),
    "maintenance": Phase(failpoints.DURING_COMPACTION, (), ("maintain",), files=12),
}


class Tried:
    """One pair of phase and fault."""

    def __init__(self, server: Cluster, folder: Path, program: Program, proxy: Proxy, phase: Phase) -> None:
        self.server, self.folder, self.program, self.proxy, self.phase = server, folder, program, proxy, phase
        self.database = server.database("places")
        self.held: list[int] = []
        server.execute(self.database, SCHEMA)
        settings = {
            **lake_settings(folder),
            "wal2lake.snapshot.rows.per.partition": "1000",
            "wal2lake.freshness.seconds": "0.5",
            "signal.data.collection": "public.signals",
            "incremental.snapshot.chunk.size": "900",
            "table.include.list": "public.big,public.small",
            "database.port": proxy.port,
            **phase.settings,
        }
        direct = server.properties(self.database, **settings)
        self.file = write_properties(folder / "p.properties", direct)
        self.direct = write_properties(folder / "d.properties", {**direct, "database.port": server.port})

    def __call__(self, fault: Callable[[Tried, Running], None], *, holds: bool) -> list[str]:
        """Bring a process to the place, do ``fault``, let it go; return what is wrong."""
        self._prepare()
        command, *arguments = self.phase.command
        armed = {"WAL2LAKE_FAILPOINT": f"{self.phase.place}{'' if ':' in self.phase.place else ':1'}:stop"}
        with self.program.started(command, self.file, *arguments, cold=True, **armed) as running:
            for text in self.phase.meanwhile:
                running.wait_for("streaming", 120)
                self.server.execute(self.database, text)
            self.held = wait_until(lambda: self._stopped(running), 180, f"{self.phase.place}: {running.said()[-2000:]}")
            fault(self, running)
            with self._letting_go(running, holds=holds):
                wrong = self._after_run(running) if command == "run" else self._after_command(running)
            said = running.said()
        wrong += [f"a stack: {said[-3000:]}"] if "Traceback" in said else []
        wrong += [f"{table} has events twice" for table in TABLES if self._is_doubled(table)]
        self.server.drop_database(self.database)
        return wrong

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

    def _run(self, command: str, *arguments: str) -> None:
        done = self.program.run(command, self.file, *arguments)
        if done.returncode:
            raise SystemExit(f"{command} ended with {done.returncode}: {done.stderr[-3000:]}")

    def _after_run(self, running: Running) -> list[str]:
        self.server.execute(self.database, _CHANGE.format(n=11))
        wait_until(lambda: self._is_equal(running), 150, f"an equal lake; {running.said()[-3000:]}", 0.5)
        self._release()
        self.server.execute(self.database, _CHANGE.format(n=12))
        wait_until(lambda: self._is_equal(running), 150, f"an equal lake; {running.said()[-3000:]}", 0.5)
        code = running.end(signal.SIGINT, 90)
        return [f"the run ended with {code}: {running.said()[-3000:]}"] if code else []

    def _after_command(self, running: Running) -> list[str]:
        code = running.end(seconds=120)
        command, *arguments = self.phase.command
        if code not in (0, 1, -signal.SIGKILL):
            return [f"{command} ended with {code}"]
        if code:
            self._run(command, *arguments)
        self._run("run", "--until-idle", "0.3")
        self._release()
        self._run("run", "--until-idle", "0.3")
        return [str(one) for one in difference(self.direct, TABLES)]

    def _is_equal(self, running: Running) -> bool:
        if running.process.poll() is not None:
            raise SystemExit(f"the run ended by itself: {running.said()[-5000:]}")
        return difference(self.direct, TABLES) == []

    def _is_doubled(self, table: TableId) -> bool:
        return changelog_path(load(self.direct), table).exists() and doubled_events(self.direct, table) > 0

    def _stopped(self, running: Running) -> list[int]:
        if running.process.poll() is not None:
            raise SystemExit(f"it ended before it came there: {running.said()[-5000:]}")
        return [pid for pid in [running.process.pid, *below(running.process.pid)] if state(pid) == "T"]

    def _release(self) -> None:
        for pid in self.held:
            if state(pid) == "T":
                os.kill(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def _letting_go(self, running: Running, *, holds: bool) -> Iterator[None]:
        """Continue whatever reaches the place again, until the end of the context; those held first only if told."""

        def go_on() -> None:
            for pid in [running.process.pid, *below(running.process.pid)]:
                if state(pid) == "T" and not (holds and pid in self.held):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)

        try:
            with repeated(go_on, 0.05):
                yield
        finally:
            self._release()


def state(pid: int) -> str:
    """The process's state as Linux tells it; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _kill_held_or_worker(tried: Tried, running: Running) -> None:
    workers = [pid for pid in below(running.process.pid) if "pyspark.daemon" in command_of(pid)]
    of_held = [pid for pid in tried.held if pid in workers]
    if not workers:
        raise SystemExit("there is no worker to kill")
    for pid in of_held or workers[-1:]:
        os.kill(pid, signal.SIGKILL)


def _kill_java(tried: Tried, running: Running) -> None:
    found = [pid for pid in below(running.process.pid) if "org.apache.spark.deploy.SparkSubmit" in command_of(pid)]
    if not found:
        raise SystemExit("there is no Java process to kill")
    for pid in found:
        os.kill(pid, signal.SIGKILL)


def _conflict(tried: Tried, running: Running) -> None:
    """Another writer's commit, with which every commit that is under way conflicts."""
    table = SMALL if "small" in str(tried.phase.command) or tried.phase.files else BIG
    path = lake_path(load(tried.direct), table)
    if (path / "_delta_log").exists():
        deltalake.DeltaTable(str(path)).alter.set_table_properties({"delta.logRetentionDuration": "interval 31 days"})


def _full(name: str) -> Callable[[Tried, Running], None]:
    def fault(tried: Tried, running: Running) -> None:
        ballast = tried.folder / name / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)
        timer = threading.Timer(6.0, lambda: ballast.unlink(missing_ok=True))
        timer.daemon = True
        timer.start()

    return fault


def _stall(tried: Tried, running: Running) -> None:
    tried.proxy.abandon()


FAULTS: dict[str, Callable[[Tried, Running], None]] = {
    "kill a worker": _kill_held_or_worker,
    "kill Java": _kill_java,
    "cut": lambda tried, running: tried.proxy.cut(),
    "stall": _stall,
    "fast restart": lambda tried, running: tried.server.restart(),
    "immediate restart": lambda tried, running: tried.server.restart(crash=True),
    "lake full": _full("lake"),
    "state full": _full("state"),
    "conflict": _conflict,
}


@contextlib.contextmanager
def disks(folder: Path) -> Iterator[None]:
    """Small file systems for lake and state, where they may be mounted."""
    mounted = []
    for name, size in (("lake", "64m"), ("state", "256m")):
        (folder / name).mkdir(parents=True)
        order = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder / name)]
        if subprocess.run(order, check=False, capture_output=True).returncode == 0:
            mounted.append(folder / name)
    if len(mounted) < 2:
        raise SystemExit("full disks need the right to mount one")
    try:
        yield
    finally:
        for each in mounted:
            subprocess.run(["umount", "-l", str(each)], check=False)


def main() -> int:
    """Try the pairs that are asked for; one line for each, and a count at the end."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--phase", action="append")
    asked.add_argument("--fault", action="append")
    asked.add_argument("--seconds", type=float, default=3600)
    given = asked.parse_args()
    end, failed, tried = time.monotonic() + given.seconds, 0, 0
    program, server = Program(), Cluster.start("debian15", {"wal_sender_timeout": "6s"})
    try:
        for name in given.phase or PHASES:
            for what in given.fault or FAULTS:
                if time.monotonic() > end:
                    break
                begun = time.monotonic()
                wrong = one(server, program, PHASES[name], what)
                failed, tried = failed + bool(wrong), tried + 1
                print(f"{name}: {what}: {wrong or 'equal'} ({time.monotonic() - begun:.0f} s)", flush=True)
    finally:
        server.stop()
        program.close()
    print(f"{tried - failed} of {tried} equal")
    return int(failed > 0)


def one(server: Cluster, program: Program, phase: Phase, what: str) -> list[str]:
    """One pair, with a lake of its own; returns what is wrong."""
    with contextlib.ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="w2l-places-")))
        if "full" in what:
            closing.enter_context(disks(folder))
        proxy = closing.enter_context(Proxy(server.host, server.port))
        try:
            return Tried(server, folder, program, proxy, phase)(FAULTS[what], holds=what == "kill Java")
        except (AssertionError, SystemExit) as error:
            return [str(error)]


if __name__ == "__main__":
    sys.exit(main())
