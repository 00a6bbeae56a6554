"""An initial, an incremental and a blocking snapshot while writers change everything, each killed twice at random.

Writers insert, update (large values left alone or not), delete, move rows to other keys, swap keys and truncate, in
transactions of one to many statements, some of them rolled back. At the end the lake is the source: every row, every
value. The seed is printed; WAL2LAKE_SEED repeats its choices, though not the moments at which processes meet.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import deltalake
import psycopg
import pytest

from cdc_core.config.connector import ConnectorConfig, load
from cdc_core.schema.table import TableId
from tests.support import sampling
from tests.support.cluster import Cluster
from tests.support.lake import changelog_path, difference, doubled_events, lake_path, write_properties
from tests.support.program import Program
from tests.support.waits import patient, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

# Sessions, each with the work of several writers: what matters is how many transactions are open side by side.
SESSIONS, WRITERS_A_SESSION, SECONDS, STATEMENTS = 10, 5, 240, 30_000
KEYS = 1_500
DOCS, PAIRS = TableId("public", "docs"), TableId("public", "pairs")
SCHEMA = f"""
create table docs (id int primary key, n bigint, note text, body text);
alter table docs alter column body set storage external;
create table pairs (a int, b text, v int, body text, primary key (a, b));
alter table pairs alter column body set storage external;
create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048));
insert into docs select g, g, 'n' || g, repeat(md5(g::text), 80) from generate_series(1, {KEYS}) g;
insert into pairs select g % 40, 'k' || g, g, repeat(md5(g::text), 80) from generate_series(1, {KEYS}) g;
"""
ALIVE = (
    "select 1 from pg_replication_slots s join pg_stat_activity a on a.pid = s.active_pid "
    "where s.database = %s and a.query like 'START_REPL%%'"
)


def statement(chance: random.Random) -> str:
    """One random change."""
    one, other = chance.randint(1, KEYS + 200), chance.randint(1, KEYS + 200)
    kinds = {"update": 50, "body": 8, "insert": 25, "delete": 10, "move": 8, "swap": 3, "truncate": 0.03}
    kind = chance.choices([*kinds], [*kinds.values()])[0]
    if chance.random() < 0.5:
        key, new, table = f"id = {one}", f"id = {other}", "docs"
        values = f"({one}, {other}, 'new', repeat(md5('{other}'), 80))"
        small, moved = f"n = {other}, note = 'u{one}'", f"id = {other}"
    else:
        key, new, table = f"a = {one % 40} and b = 'k{one}'", f"a = {other % 40} and b = 'k{other}'", "pairs"
        values = f"({one % 40}, 'k{one}', {other}, repeat(md5('{other}'), 80))"
        small, moved = f"v = {other}", f"a = {other % 40}, b = 'k{other}'"
    return {
        "update": f"update {table} set {small} where {key}",
        "body": f"update {table} set body = repeat(md5('{other}b'), 80) where {key}",
        "insert": f"insert into {table} values {values} on conflict do nothing",
        "delete": f"delete from {table} where {key}",
        "move": f"update {table} set {moved} where {key} and not exists (select from {table} where {new})",
        "swap": (
            f"with gone as (delete from {table} where {key} returning 1) "
            f"insert into {table} select {values[1:-1]} from gone on conflict do nothing"
        ),
        "truncate": f"truncate {table}",
    }[kind]


class Load:
    """Writers at work until ``stop`` or their bound; the number of changes that were committed or rolled back."""

    def __init__(self, cluster: Cluster, database: str, seed: int) -> None:
        self.cluster, self.database, self.done = cluster, database, 0
        self.failures: list[BaseException] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(random.Random(seed * 100 + n),), daemon=True)
            for n in range(SESSIONS)
        ]

    def _write(self, chance: random.Random) -> None:
        deadline = time.monotonic() + SECONDS
        try:
            with psycopg.connect(**self.cluster.dsn(self.database), options="-c lock_timeout=2000") as session:
                while not self._stop.is_set() and time.monotonic() < deadline and self.done < STATEMENTS:
                    self._transaction(session, chance)
                    # What several writers would do in turn, each with a pause of its own.
                    time.sleep(chance.random() * 0.1 / WRITERS_A_SESSION)
        except BaseException as error:
            self.failures.append(error)

    def _transaction(self, session: psycopg.Connection[tuple[object, ...]], chance: random.Random) -> None:
        try:
            for _ in range(chance.choice((1, 1, 1, 2, 5, 20))):
                session.execute(statement(chance).encode())
                self.done += 1
                if chance.random() < 0.05:
                    time.sleep(chance.random() * 0.2)
            session.commit() if chance.random() < 0.9 else session.rollback()
        except (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable, psycopg.errors.UniqueViolation):
            session.rollback()

    @contextmanager
    def at_work(self) -> Iterator[Load]:
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join(patient(30))
        assert not self.failures, self.failures


def commits(config: ConnectorConfig, name: str) -> int:
    """Commits of one of the lake's own tables."""
    return len(list((Path(config.lake.lake_path) / config.schema.topic_prefix / name / "_delta_log").glob("*.json")))


def ask(cluster: Cluster, database: str, kind: str) -> None:
    data = json.dumps({"data-collections": ["public.docs", "public.pairs"], "type": kind})
    cluster.execute(database, "insert into signals values (gen_random_uuid()::text, 'execute-snapshot', %s)", [data])


def killed(program: Program, file: Path, chance: random.Random, is_time: Callable[[], object]) -> None:
    """A run that is killed a moment after ``is_time``."""
    with program.started("run", file) as running:
        wait_until(lambda: is_time() or running.process.poll() is not None, 120, "the moment")
        assert running.process.poll() is None, running.said()
        time.sleep(chance.random() * 1.5)
        running.process.kill()
        running.end()


def test_every_kind_of_snapshot_killed_twice_amid_writers(pg: Cluster, program: Program, tmp_path: Path) -> None:
    seed = sampling.seed(2611)
    print(f"seed {seed}")
    chance, database = random.Random(seed), pg.database("load")
    pg.execute(database, SCHEMA)
    rules = {
        "table.include.list": "public.docs,public.pairs",
        "signal.data.collection": "public.signals",
        "incremental.snapshot.chunk.size": str(chance.choice((15, 40, 100))),
        "wal2lake.lake.path": str(tmp_path / "lake"),
        "wal2lake.state.path": str(tmp_path / "state"),
        "wal2lake.freshness.seconds": chance.choice(("0", "0.5")),
        "wal2lake.snapshot.rows.per.partition": "400",
    }
    file = write_properties(tmp_path / "load.properties", pg.properties(database, **rules))
    config = load(file)
    with Load(pg, database, seed).at_work() as writers:
        slot = "select 1 from pg_replication_slots where database = %s"
        killed(program, file, chance, lambda: pg.execute("postgres", slot, [database]))
        before = commits(config, "__snapshots")
        killed(program, file, chance, lambda: commits(config, "__snapshots") > before or streams(pg, database))
        killed(program, file, chance, lambda: streams(pg, database))  # by now there is something to damage
        for table in (DOCS, PAIRS):
            damage(lake_path(config, table), chance)
        for landings in (3, 4):
            ask(pg, database, "incremental")
            before = commits(config, "__incremental")
            killed(program, file, chance, lambda b=before, n=landings: commits(config, "__incremental") >= b + n)
        for _ in range(2):
            ask(pg, database, "blocking")
            before = commits(config, "__snapshots")
            killed(program, file, chance, lambda b=before: commits(config, "__snapshots") > b)
        assert writers.done > 500
    done = program.run("run", file, "--until-idle", "2", "--max-seconds", "1500")
    assert done.returncode == 0, done.stderr[-3000:]
    assert difference(file, [DOCS, PAIRS]) == [], f"seed {seed}, {writers.done} changes\n{done.stderr[-2000:]}"
    # A table whose every change one of the snapshots shows has no changelog.
    logged = [table for table in (DOCS, PAIRS) if changelog_path(config, table).exists()]
    assert [doubled_events(file, table) for table in logged] == [0] * len(logged)
    pg.drop_database(database)


def streams(cluster: Cluster, database: str) -> bool:
    return bool(cluster.execute("postgres", ALIVE, [database]))


def damage(lake: Path, chance: random.Random) -> None:
    """Rows that an accident has taken away, and values that it has changed."""
    if not lake.exists():
        return
    column = "id" if lake.name == "docs" else "a"
    low = chance.randrange(20)
    deltalake.DeltaTable(str(lake)).delete(f"{column} % 40 = {low}")
    deltalake.DeltaTable(str(lake)).update({"body": "'damaged'"}, predicate=f"{column} % 40 = {low + 1}")
