"""Columns that a Delta table cannot hold under their names: such a table waits alone, and is read when it can be."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.program import Program
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

PLAIN, CASE, OWN, LATER = (TableId("public", name) for name in ("plain", "by_case", "own_name", "later"))
MADE = """
create table plain (id int primary key, v text);
create table by_case (id int primary key, v text, "V" text);
create table own_name (id int primary key, v text, "__Commit_LSN" text, __deleted bool);
create table later (id int primary key, v text);
"""
ROWS = "; ".join(f"insert into {name.table} (id, v) select g, 'v' from generate_series(1, 9) g" for name in
                 (PLAIN, CASE, OWN, LATER))  # fmt: skip


def test_only_the_table_itself_waits(pg: Cluster, program: Program, tmp_path: Path) -> None:
    database = pg.database("clashing")
    file = write_properties(
        tmp_path / "clashing.properties",
        pg.properties(
            database,
            **{"schema.include.list": "public", "publication.autocreate.mode": "filtered", **lake_settings(tmp_path)},
        ),
    )
    pg.execute(database, f"{MADE}; {ROWS}")

    checked = program.run("check", file)
    said = " ".join((checked.stdout + checked.stderr).split())
    assert "public.by_case differs from another only in case" in said
    assert "public.own_name has a name that is reserved" in said

    # At the first snapshot, and in the stream behind it; one table gets its column only now.
    done = program.stream(file)
    assert done.returncode == 1, done.stderr[-3000:]
    assert set(program.paused(file)) == {str(CASE), str(OWN)}
    assert difference(file, [PLAIN, LATER]) == []
    changes = "; ".join(f"update {name.table} set v = 'w' where id < 4" for name in (PLAIN, CASE, OWN, LATER))
    with program.started("run", file) as running:
        sql = "select active from pg_replication_slots where slot_name = %s"
        wait_until(lambda: pg.execute("postgres", sql, [database]) == [(True,)], 120, "the stream")
        pg.execute(database, f'alter table later add "V" text; {changes}')
        running.wait_for(f"{LATER} is paused")
        # A run that is asked to stop leaves what is not merged to the next one.
        wait_until(lambda: difference(file, [PLAIN]) == [], 120, "the others' changes")
        assert running.end(signal.SIGTERM, 120) == 1, running.said()[-3000:]
    assert set(program.paused(file)) == {str(CASE), str(OWN), str(LATER)}
    refused = program.run("snapshot", file, str(CASE))
    assert refused.returncode != 0 and "differs from another only in case" in refused.stderr + refused.stdout
    assert difference(file, [PLAIN]) == []

    # What the remedy says: one while a run streams, the others while it is down.
    pg.execute(database, 'alter table by_case rename "V" to w; alter table later drop "V"')
    done = program.run("run", file, "--until-idle", "8", "--max-seconds", "1500")
    assert set(program.paused(file)) == {str(OWN)}, done.stdout + done.stderr
    pg.execute(database, 'alter table own_name drop "__Commit_LSN", drop __deleted; update own_name set v = id')
    done = program.run("run", file, "--until-idle", "8", "--max-seconds", "1500")
    assert done.returncode == 0, done.stderr[-3000:]
    assert program.paused(file) == {}
    assert difference(file, [PLAIN, CASE, OWN, LATER]) == []
    pg.drop_database(database)
