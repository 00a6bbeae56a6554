"""Random changes of tables and rows, runs killed at random places: no lake table differs in silence.

Every step of a run is fair game, those of reading a table again among them. At the end each table equals its source, or
``status`` lists it as paused; either way its changelog has every event that the slot brought, once.

``WAL2LAKE_KILLS_SEED`` sets the seed, ``WAL2LAKE_KILLS_ROUNDS`` how many rounds there are (default 12; more, if it was
killed fewer than three times by then). An odd seed's publication lists the tables, an even one's has all.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import Counter
from pathlib import Path

import pytest

from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support import sampling
from tests.support.cluster import Cluster
from tests.support.lake import changelog_path, doubled_events, lake_path, lake_settings, rows, write_properties
from tests.support.program import Program
from tests.support.random_ddl import RandomDdl, events_of
from tests.support.waits import patient

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

TABLES = ("t1", "t2", "t3")
ROUNDS = int(os.environ.get("WAL2LAKE_KILLS_ROUNDS", "12"))
SEED = sampling.seed(2611, "WAL2LAKE_KILLS_SEED")
# Not reached by this connector's settings, or only once in its life.
ELSEWHERE = {
    failpoints.AFTER_EPOCH_BEGUN,
    failpoints.AFTER_SLOT_RECORDED,
    failpoints.AFTER_SLOT_CREATED,
    failpoints.AFTER_VECTORS,
    failpoints.AFTER_QUARANTINE,
    failpoints.DURING_COMPACTION,
}
PLACES = [name for name in failpoints.ALL if name not in ELSEWHERE]
# Reached only where a table is altered or read again, so they are tried more often than the others.
OF_CHANGES = (
    failpoints.DURING_EVOLUTION,
    failpoints.AFTER_EVOLUTION,
    failpoints.BEFORE_SNAPSHOT_COMMIT,
    failpoints.AFTER_SNAPSHOT_COMMIT,
)


def test_killed_amid_changes_of_its_tables_no_lake_table_differs_in_silence(
    pg: Cluster, program: Program, tmp_path: Path
) -> None:
    print(f"WAL2LAKE_KILLS_SEED={SEED}")
    database, is_listed = pg.database("altered"), bool(SEED % 2)
    work = RandomDdl(pg, database, SEED, TABLES, publication=database, is_listed=is_listed)
    file = write_properties(
        tmp_path / "altered.properties",
        pg.properties(
            database,
            **{
                "table.include.list": "public.t.*",
                "publication.autocreate.mode": "filtered" if is_listed else "all_tables",
                **lake_settings(tmp_path),
            },
        ),
    )
    try:
        work.setup()
        assert program.run("snapshot", file).returncode == 0
        pg.execute(database, "select pg_create_logical_replication_slot(%s, 'pgoutput')", [f"{database}_all"])
        killed = run_and_kill(work, program, file)
        done = program.stream(file)
        assert ended_well(done), done.stderr[-3000:]
        told = f"seed {SEED}, killed at {killed}\n" + "\n".join(work.log)
        paused = {table.removeprefix("public."): found["reason"] for table, found in program.paused(file).items()}
        assert work.different(tmp_path / "lake" / "test", sorted(paused)) == {}, told
        assert changelog_events(file) == wanted_events(work, f"{database}_all"), told
        assert sum(killed.values()) >= 1, told
        bring_in(work, program, file, paused)
        assert work.different(tmp_path / "lake" / "test") == {}, told
    finally:
        work.close()
        pg.drop_database(database)


def run_and_kill(work: RandomDdl, program: Program, file: Path) -> Counter[str]:
    """Runs amid changes; where they were killed, how often."""
    killed: Counter[str] = Counter()
    chance = work.random
    for number in range(5 * ROUNDS):
        if number >= ROUNDS and sum(killed.values()) >= 3:
            break
        place = chance.choice([*PLACES, *OF_CHANGES, *OF_CHANGES])
        work.run(chance.randrange(4, 12))
        beside = threading.Thread(target=work.run, args=(chance.randrange(1, 12),))
        beside.start()
        try:
            done = program.stream(file, f"{place}:{chance.randrange(1, 3)}")
        finally:
            beside.join(patient(60))
        assert done.returncode == -signal.SIGKILL or ended_well(done), f"{place}: {done.stderr[-3000:]}"
        killed[place] += done.returncode == -signal.SIGKILL
    return +killed


def ended_well(done: subprocess.CompletedProcess[str]) -> bool:
    """At the end of what came; where a table is paused, with the exit code and the sentence that tell of it."""
    return done.returncode == 0 or (done.returncode == 1 and "is not merged" in done.stdout + done.stderr)


def changelog_events(file: Path) -> dict[str, int]:
    """Events of each table's changelog, none twice."""
    config, found = load(file), {}
    for name in TABLES:
        table = TableId("public", name)
        assert not changelog_path(config, table).exists() or doubled_events(file, table) == 0
        found[name] = events_in(changelog_path(config, table))
    assert all(lake_path(config, TableId("public", name)).exists() for name in TABLES)
    return found


def events_in(path: Path) -> int:
    if not path.exists():
        return 0
    (counted,) = rows(path, "select count(*) as n from t where \"__op\" in ('c', 'u', 'd')")
    return int(counted["n"])


def wanted_events(work: RandomDdl, slot: str) -> dict[str, int]:
    counted = events_of(work.session, slot, work.publication)
    return {name: counted[f"public.{name}"] for name in TABLES}


def bring_in(work: RandomDdl, program: Program, file: Path, paused: dict[str, str]) -> None:
    """Take away what the tables are paused for, and replay them."""
    for table in paused:
        if work.is_listed:
            work.publish_again(table)
        done = program.run("replay", file, f"public.{table}")
        assert done.returncode == 0, (paused, done.stderr)
    if paused:
        assert program.stream(file).returncode == 0
