"""What a connector file says has its effect in a run into the lake, too, or the run says that it has none."""

import pytest

from tests.support.lake import lake_settings, write_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]


def connector(pg, database, folder, **more):
    """A connector into a lake."""
    settings = {**lake_settings(folder), **more}
    return write_properties(folder / "effects.properties", pg.properties(database, **settings))


def test_the_heartbeats_query_is_run_beside_a_lake(pg, program, tmp_path):
    database = pg.database("beats")
    pg.execute(database, "create table kept (id int primary key); create table beats (at timestamptz default now())")
    beat = {"heartbeat.interval.ms": "100", "heartbeat.action.query": "insert into beats default values"}
    file = connector(pg, database, tmp_path, **{"table.include.list": "public.kept", **beat})

    def beats():
        return pg.execute(database, "select count(*) from beats")[0][0]

    def confirmed():
        return pg.execute(
            database, f"select confirmed_flush_lsn - '0/0' from pg_replication_slots where database = '{database}'"
        )[0][0]

    with program.started("run", file) as running:
        running.wait_for("streaming")
        wait_until(lambda: beats() >= 3, 30, "the query of three heartbeats")
        # Nothing else is written: only the query lets the slot go on.
        before = pg.execute(database, "select pg_current_wal_insert_lsn() - '0/0'")[0][0]
        wait_until(lambda: confirmed() > before, 60, "a position after the query's WAL")
        pg.execute(database, "alter table beats rename to elsewhere")
        running.wait_for('relation "beats" does not exist')
        pg.execute(database, "alter table elsewhere rename to beats")
        last = beats()
        wait_until(lambda: beats() > last, 30, "the query after it was refused")
        assert running.process.poll() is None
        assert running.end(2) == 0, running.said()
        assert running.said().count('relation "beats" does not exist') == 1, running.said()
    checked = program.run("check", file)
    assert "ok   heartbeat query: The server can run heartbeat.action.query." in checked.stdout, checked.stdout
    assert beats() >= last
    pg.execute(database, "drop table beats")
    checked = program.run("check", file)
    assert "warn heartbeat query" in checked.stdout and 'relation "beats" does not exist' in checked.stdout
