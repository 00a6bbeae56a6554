"""One run survives every fault that passes, in sequence and under load; then it is killed and started again at once.

Each fault is one sentence when the run begins to wait, and one when it goes on. At the end the lake equals the source,
each change is in its changelog once, and nothing that was printed is a stack.
"""

import os
import re
import signal
import stat
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, doubled_events, lake_settings, rows, write_properties
from tests.support.proxy import Proxy
from tests.support.waits import patient, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

ACCOUNTS, EVENTS = TableId("public", "accounts"), TableId("public", "events")
SCHEMA = """
create table accounts (id int primary key, n int);
create table events (id int primary key, what text);
insert into accounts select g, 0 from generate_series(1, 20) g;
"""
# Of the line that a run prints once when it begins to wait, and once when it goes on.
WAITING, GOING_ON = "Waiting, and trying again: ", "Running again after "
STACK = re.compile(r"Traceback|^\s+at [\w.$]+\(|wal2lake-error|Caused by:|BrokenPipe|ephemeral docs", re.MULTILINE)


class Load(threading.Thread):
    """Commits small transactions all the time, and goes on when the server is back."""

    def __init__(self, server, database):
        super().__init__(daemon=True)
        self.server, self.database = server, database
        self.stopped, self.number = threading.Event(), 0

    def run(self):
        while not self.stopped.wait(0.02):
            try:
                with self.server.connect(self.database) as connection:
                    self._work(connection)
            except psycopg.Error:
                continue

    def _work(self, connection):
        while not self.stopped.wait(0.05):
            self.number += 1
            connection.execute("update accounts set n = n + 1 where id = %s", [self.number % 20 + 1])
            connection.execute(
                "insert into events values (%s, 'x') on conflict (id) do update set what = 'y'", [self.number]
            )
            connection.commit()


class Watched:
    """A run and its lake: what it says, and whether a change made now arrives."""

    def __init__(self, running, server, database, file):
        self.running, self.server, self.database, self.file = running, server, database, file
        self.mark = 1_000_000
        self.said_before = 0

    def arrives(self, seconds=60):
        """A change that is made now is in the lake after some time; returns how long it took."""
        self.mark += 1
        begun = time.monotonic()
        self.server.execute(self.database, f"insert into events values ({self.mark}, 'mark')")
        path = Path(self.server_lake) / "public" / "events"
        wait_until(lambda: self._has(path), seconds, f"change {self.mark} in the lake", 0.3)
        return time.monotonic() - begun

    def _has(self, path):
        assert self.running.process.poll() is None, self.running.said()[-3000:]
        return rows(path, f"select id from t where id = {self.mark}")

    def fault(self, what, cause, *, seconds=60):
        """Between the call and now one fault happened: it is said once, with its cause, and it is over."""
        wait_until(lambda: self._goes_on() or not self._runs(), seconds, f"going on after {what}")
        said = self._fresh()
        assert self._runs(), f"{what} ended the run: {said}"
        assert re.search(cause, said), f"{what}: {said}"
        self.arrives()
        self.said_before = len(self.running.said())

    def _goes_on(self):
        """Whether it waited and goes on; while a disk is nearly full, or a server starts, it may wait again."""
        said = self._fresh()
        return said.count(WAITING) == said.count(GOING_ON) >= 1

    def says_or_ends(self, text):
        """Whether it has said something since the last fault, or will not say it any more."""
        return text in self._fresh() or not self._runs()

    def _runs(self):
        return self.running.process.poll() is None

    def _fresh(self):
        return self.running.said()[self.said_before :]


@pytest.fixture
def server():
    cluster = Cluster.start("debian15", settings={"wal_sender_timeout": "6s"})
    yield cluster
    cluster.stop()


def children(pid):
    """All processes below one."""
    found = subprocess.run(["ps", "-wweo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in found.splitlines()]
    below, todo = [], [pid]
    while todo:
        parent = todo.pop()
        for child, of, *arguments in rows:
            if int(of) == parent:
                below.append((int(child), " ".join(arguments)))
                todo.append(int(child))
    return below


def java_of(running):
    """The process id of a run's Java process."""

    def the_only_one():
        # A process that Java is about to start shows Java's own arguments for a moment.
        found = [pid for pid, args in children(running.process.pid) if "org.apache.spark" in args]
        return found if len(found) == 1 else None

    return wait_until(the_only_one, 60, "one Java process")[0]


def open_to_others(folder):
    """What others may read or enter, below a folder in which files come and go."""
    found = {}
    for path in [folder, *files(folder)]:
        with suppress(FileNotFoundError):
            status = path.stat()
            if status.st_mode & 0o077 and not stat.S_ISSOCK(status.st_mode):
                found[path] = oct(stat.S_IMODE(status.st_mode))
    return found


@contextmanager
def small_disk(folder, size="48m"):
    """A file system of some megabytes at ``folder``; None where the tests may not mount one."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=False)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "-l", str(folder)], check=False)


def test_one_run_survives_every_fault_and_a_kill(program, server, tmp_path):
    database = server.database("service")
    server.execute(database, SCHEMA)
    load = Load(server, database)
    with (
        small_disk(tmp_path / "disk") as is_small,
        small_disk(tmp_path / "state", "256m"),
        Proxy(server.host, server.port) as proxy,
    ):
        settings = {**lake_settings(tmp_path / "disk"), "wal2lake.state.path": str(tmp_path / "state")}
        settings["wal2lake.freshness.seconds"] = "1"  # the load never pauses, so rounds would not either
        direct = server.properties(database, **settings)
        file = write_properties(tmp_path / "s.properties", {**direct, "database.port": proxy.port})
        (tmp_path / "state" / "spool").mkdir(parents=True)
        (tmp_path / "state").chmod(0o755)

        load.start()
        with program.started("run", file, cold=True) as running:
            running.wait_for("rows of 2 tables", 120)
            watched = Watched(running, server, database, file)
            watched.server_lake = tmp_path / "disk" / "lake" / direct["topic.prefix"]
            watched.arrives()
            watched.said_before = len(running.said())

            server.restart()
            watched.fault("a fast restart", "stopping|lost|restarting|terminating")
            server.restart(crash=True)
            watched.fault("an immediate restart", "lost|stopping|terminating")
            proxy.cut()
            watched.fault("a cut", "lost")
            server.execute("postgres", "select pg_terminate_backend(pid) from pg_stat_replication")
            watched.fault("pg_terminate_backend of the walsender", "terminating connection")
            proxy.abandon()
            watched.fault("connections that stall for good, and stay open at the server", "has sent nothing for")
            proxy.refuse()
            wait_until(lambda: watched.says_or_ends(WAITING), 60, "the wait")
            told = program.run("status", file, "--json", own_java=True).stdout
            proxy.resume()
            assert '"waiting": {"cause": ' in told
            watched.fault("a refusal", "lost|cannot|Cannot|listening")
            if is_small:
                for disk in ("disk", "state"):
                    ballast = tmp_path / disk / "ballast"
                    # What the run removes meanwhile gives room again, so it is filled again and again.
                    wait_until(lambda b=ballast: fill(b) or watched.says_or_ends("is full"), 60, "the full disk")
                    ballast.unlink()
                    watched.fault(f"a full disk of {disk}", "is full")

            java = java_of(running)
            os.kill(children(java)[-1][0], signal.SIGKILL)  # the last one is a worker, the first one the daemon
            watched.arrives()  # Spark may replace a worker by itself, or the run begins again
            wait_until(lambda: running.said().count(WAITING) == running.said().count(GOING_ON), 60, "going on")
            watched.said_before = len(running.said())
            os.kill(java_of(running), signal.SIGKILL)
            watched.fault("the end of Spark's Java process", "Spark's Java process ended|worker process", seconds=120)

            wide = open_to_others(tmp_path / "state")
            running.end(signal.SIGKILL)
            first = running.said()
        begun = time.monotonic()
        with program.started("run", file, own_java=True) as again:
            watched.running = again
            watched.arrives()
            seconds = time.monotonic() - begun
            load.stopped.set()
            load.join(patient(30))
            watched.arrives()
            assert again.end(signal.SIGTERM) == 0, again.said()[-3000:]
            second = again.said()
        for said in (first, second):
            assert not STACK.search(said), said[-6000:]
        assert len([line for line in first.splitlines() if WAITING in line]) <= 12
        assert wide == {}
        assert load.number > 100
        assert difference(file, [ACCOUNTS, EVENTS]) == []
        assert [doubled_events(file, table) for table in (ACCOUNTS, EVENTS)] == [0, 0]
        print(f"from kill to the first change: {seconds:.1f} s")


def files(folder):
    """What is in a folder, without what Spark and its Java process write for themselves."""
    found = []
    with suppress(FileNotFoundError):
        for path in folder.iterdir():
            if path.name != "tmp":
                found += [path, *(files(path) if path.is_dir() else [])]
    return found


def fill(path):
    """Fill the disk to the last byte."""
    with suppress(OSError), path.open("ab", buffering=0) as ballast:
        while True:
            ballast.write(b"\0" * 65536)
