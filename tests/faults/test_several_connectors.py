"""Several connectors in one process on several servers: faults of one, of the process and of its Java process."""

import json
import os
import signal
import threading
import urllib.error
import urllib.request

import psycopg
import pytest

from cdc_core.config import load
from cdc_core.demo.processes import free_port
from cdc_core.schema.table import TableId
from tests.faults.test_service import java_of
from tests.support.cluster import Cluster
from tests.support.lake import difference, doubled_events, lake_path, lake_settings, rows, write_properties
from tests.support.waits import patient, unmet_by, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

TABLE = TableId("public", "t")
SCHEMA = """
create table t (id int primary key, n int);
insert into t select g, 0 from generate_series(1, 20) g;
"""


class Source:
    """One connector's server, database and file, and whether a change of now arrives."""

    def __init__(self, name, server, folder, **properties):
        self.name, self.server = name, server
        self.database = server.database(name)
        server.execute(self.database, SCHEMA)
        settings = {**lake_settings(folder), "wal2lake.freshness.seconds": "1", "topic.prefix": name}
        self.content = server.properties(self.database, **{**settings, "table.include.list": "public.t", **properties})
        self.path = folder / f"{name}.properties"
        self.write()
        self.mark = 1_000_000

    def write(self, **properties):
        write_properties(self.path, {**self.content, **properties})

    def arrives(self, running):
        """A change that is made now is in the lake after some time."""
        self.mark += 1
        self.server.execute(self.database, f"insert into t values ({self.mark}, 0)")
        path = lake_path(load(self.path), TABLE)

        def has_arrived():
            assert running.process.poll() is None, running.said()[-3000:]
            return rows(path, f"select id from t where id = {self.mark}")

        wait_until(has_arrived, 90, f"change {self.mark} in the lake of {self.name}", 0.3)

    @property
    def slot(self):
        return self.content["slot.name"]

    def is_equal(self):
        assert difference(self.path, [TABLE]) == [] and doubled_events(self.path, TABLE) == 0


class Load(threading.Thread):
    """Commits small transactions until it is stopped."""

    def __init__(self, sources):
        super().__init__(daemon=True)
        self._sources, self.stopped, self._number = sources, threading.Event(), 0

    def run(self):
        while not self.stopped.wait(0.05):
            self._number += 1
            for source in self._sources:
                source.server.execute(source.database, f"update t set n = n + 1 where id = {self._number % 20 + 1}")


@pytest.fixture
def server():
    """A server that may be stopped."""
    cluster = Cluster.start("debian15")
    yield cluster
    cluster.stop()


def health(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=patient(10)) as answer:
            page = json.loads(answer.read())
    except urllib.error.HTTPError as error:
        page = json.loads(error.read())
    return {name: connector["state"] for name, connector in page["connectors"].items()}


def test_faults_of_one_connector_do_not_touch_the_others(program, embedded18, server, tmp_path):
    port = free_port()
    shared = {"wal2lake.metrics.port": port, "wal2lake.spark.spark.driver.memory": "512m"}
    calm = Source("calm", embedded18, tmp_path, **shared)
    away = Source("away", server, tmp_path, **shared)
    wrong = Source("wrong", embedded18, tmp_path, **shared)
    wrong.write(**{"snapshot.mode": "sometimes"})
    files = [str(source.path) for source in (away, wrong)]

    with program.started("run", calm.path, *files, own_java=True) as running:

        def states(**wanted):
            look = unmet_by(urllib.error.URLError, lambda: wanted.items() <= health(port).items())
            wait_until(look, 120, f"{wanted} in {running.said()[-2000:]}", 0.2)

        # A file that is not valid is read again until it is.
        states(calm="streaming", away="streaming", **{str(wrong.path): "failed"})
        assert f"{wrong.path}: {wrong.path}: snapshot.mode is 'sometimes'" in running.said()
        wrong.write()
        states(wrong="streaming")
        assert str(wrong.path) not in health(port)
        for source in (calm, away, wrong):
            source.arrives(running)

        # A server that is away.
        server.halt()
        states(away="waiting", calm="streaming")
        for _ in range(2):
            calm.arrives(running)
        assert program.run("status", away.path, "--json", own_java=True).stdout.count('"waiting": {"cause"') == 1
        server.restart()
        states(away="streaming")
        away.arrives(running)
        assert "away: Running again after" in running.said() and "calm: Waiting" not in running.said()

        # The Java process of all of them.
        java = java_of(running)
        os.kill(java, signal.SIGKILL)
        for source in (calm, away, wrong):
            source.arrives(running)
        assert java_of(running) != java

        # A slot that is lost, and waits for an operator.
        server.execute("postgres", "select pg_terminate_backend(active_pid) from pg_replication_slots")
        dropped = f"select pg_drop_replication_slot('{away.slot}')"
        wait_until(unmet_by(psycopg.errors.ObjectInUse, lambda: server.execute("postgres", dropped)), 60, "the drop")
        states(away="failed", calm="streaming")
        assert "away: It starts again in " in running.said()
        calm.arrives(running)
        assert '"waiting": {"cause"' in program.run("status", away.path, "--json", own_java=True).stdout
        assert running.end(signal.SIGTERM) == 1
        assert running.said().count("calm: streaming") == 1 and "Traceback" not in running.said()
    for source in (calm, wrong):
        source.is_equal()


def test_a_kill_of_the_process_loses_nothing_of_any_connector(program, embedded18, debian15, tmp_path):
    sources = [Source("one", embedded18, tmp_path), Source("two", debian15, tmp_path)]
    files = [str(source.path) for source in sources[1:]]
    load_of_both = Load(sources)
    load_of_both.start()
    try:
        for _ in range(2):
            with program.started("run", sources[0].path, *files, own_java=True) as running:
                for source in sources:
                    source.arrives(running)
                running.process.send_signal(signal.SIGKILL)
                running.process.wait(patient(60))
    finally:
        load_of_both.stopped.set()
        load_of_both.join(patient(60))
    done = program.run("run", sources[0].path, *files, "--until-idle", "0.5", own_java=True)
    assert done.returncode == 0, done.stderr
    ends = [line for line in done.stderr.splitlines() if " changes in " in line]
    assert sorted(line.partition(":")[0] for line in ends) == ["one", "two"], done.stderr
    for source in sources:
        source.is_equal()
