"""Incremental snapshots amid writers, the process killed: no row goes back, and the events end where the table ends.

Every write takes a fresh number, so that of one key's events each must show a larger number than those before it.
"""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.support.cluster import Cluster
from tests.support.program import Program
from tests.support.sampling import seed
from tests.support.waits import patient, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

SETUP = """
create sequence n;
create table t (id int primary key, n bigint);
create table signals (id varchar(42) primary key, type varchar(32), data varchar(2048));
insert into t select i, nextval('n') from generate_series(1, 600) i;
"""
ASK = (
    "insert into signals values (gen_random_uuid()::text, 'execute-snapshot', '{\"data-collections\": [\"public.t\"]}')"
)
# While a slot is made it counts as active too, and shows nothing of that time.
BUSY = (
    "select 1 from pg_replication_slots s join pg_stat_activity a on a.pid = s.active_pid "
    "where slot_name = %s and a.query like 'START_REPL%%'"
)
ACTIVE = "select 1 from pg_replication_slots where slot_name = %s and active"
WRITERS = 4
SECONDS = 60


def write(cluster: Cluster, database: str, seed: int, stop: threading.Event, failures: list[BaseException]) -> None:
    """Random changes, some of them in transactions that stay open for a moment.

    A key's number is drawn while nobody else may write to that key: an INSERT that waits has drawn its number before.
    """
    chance = random.Random(seed)
    try:
        with psycopg.connect(**cluster.dsn(database)) as session:
            while not stop.is_set():
                try:
                    for _ in range(chance.choice((1, 1, 3))):
                        change(session, chance)
                    time.sleep(chance.random() * 0.03)
                    session.commit() if chance.random() < 0.9 else session.rollback()
                except psycopg.errors.DeadlockDetected:
                    session.rollback()
    except BaseException as error:
        failures.append(error)


def change(session: psycopg.Connection[tuple[object, ...]], chance: random.Random) -> None:
    one, other = chance.randint(1, 700), chance.randint(1, 700)
    for key in sorted((one, other)):
        session.execute(f"select pg_advisory_xact_lock({key})".encode())
    statement = chance.choices(
        (
            f"update t set n = nextval('n') where id = {one}",
            f"insert into t values ({one}, nextval('n')) on conflict do nothing",
            f"delete from t where id = {one}",
            f"update t set id = {other}, n = nextval('n') where id = {one} "
            f"and not exists (select from t where id = {other})",
        ),
        (6, 3, 1, 1),
    )[0]
    session.execute(statement.encode())


@contextmanager
def writers(cluster: Cluster, database: str, seed: int) -> Iterator[None]:
    """Writers at work until the block ends."""
    stop, failures = threading.Event(), list[BaseException]()
    threads = [
        threading.Thread(target=write, args=(cluster, database, seed * 10 + number, stop, failures), daemon=True)
        for number in range(WRITERS)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(patient(SECONDS))
    assert not failures and not any(thread.is_alive() for thread in threads)


def rows_read(output: Path) -> int:
    return output.read_bytes().count(b'"snapshot":"incremental"') if output.exists() else 0


def events_of(output: Path) -> tuple[dict[int, int], int]:
    """The rows that the events end with, and how many were read in chunks; each key's numbers only grow."""
    rows: dict[int, int] = {}
    seen: dict[int, int] = {}
    read = 0
    for line in output.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if not record["topic"].endswith(".t") or record["value"] is None:
            continue
        payload, key = record["value"]["payload"], record["key"]["payload"]["id"]
        if payload["op"] == "d":
            rows.pop(key, None)
            continue
        number = payload["after"]["n"]
        if payload["op"] == "r":
            read += 1
            # The row as it is known already, or newer; of a row that is known to be deleted, only a newer one.
            known = seen.get(key, 0)
            assert number >= known if key in rows else number > known, f"a row of key {key} went back"
        else:
            assert number > seen.get(key, 0) or (number == seen[key] and rows.get(key) == number), f"key {key}"
        rows[key] = seen[key] = number
    return rows, read


@pytest.mark.parametrize(
    "strategy",
    [
        {"incremental.snapshot.watermarking.strategy": "insert_insert"},
        {"incremental.snapshot.watermarking.strategy": "insert_delete"},
        {"read.only": "true"},
    ],
    ids=["insert_insert", "insert_delete", "read.only"],
)
def test_killed_twice_amid_writers_it_ends_where_the_table_ends(
    pg: Cluster, program: Program, tmp_path: Path, strategy: dict[str, str]
) -> None:
    drawn = seed(2611)
    print(f"seed {drawn}")
    chance = random.Random(drawn)
    database = pg.database("kills")
    output, config = tmp_path / "out.jsonl", tmp_path / "c.properties"
    rules = {"snapshot.mode": "no_data", "signal.data.collection": "public.signals", **strategy}
    rules["incremental.snapshot.chunk.size"] = str(chance.choice((3, 7, 20)))
    entries = pg.properties(database, **rules)
    config.write_text("".join(f"{name}={value}\n" for name, value in entries.items()))
    arguments = ("envelopes", config, "--output", str(output))
    try:
        pg.execute(database, SETUP)
        with writers(pg, database, drawn):
            for _ in range(2):
                with program.started(*arguments, own_java=True) as running:
                    wait_until(lambda: pg.execute("postgres", BUSY, [database]), SECONDS, "the stream")
                    # Also the second time: what was asked for first may have been read to its end before the kill.
                    pg.execute(database, ASK)
                    before = rows_read(output)
                    wait_until(lambda before=before: rows_read(output) > before + 20, SECONDS, "rows of chunks")
                    time.sleep(chance.random() * 0.2)
                    assert running.end(signal.SIGKILL) == -signal.SIGKILL, running.said()
                wait_until(lambda: not pg.execute("postgres", ACTIVE, [database]), SECONDS, "the end of the stream")
        done = program.run(*arguments, "--until-idle", "2", own_java=True)
        assert done.returncode == 0, done.stderr
        rows, read = events_of(output)
        expected = dict(pg.execute(database, "select id, n from t"))
    finally:
        pg.drop_database(database)
    assert rows == expected
    assert read > 100
