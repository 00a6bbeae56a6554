"""A table that another session has locked for ever: a read says which one after a bounded time, the others are read."""

import json
from contextlib import contextmanager

import pytest

from cdc_core.assemble import Connector
from cdc_core.errors import LockedError
from cdc_core.schema.table import TableId
from cdc_core.snapshot.incremental.reports import RangeReport
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.spark import test_session
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

FREE, LOCKED = TableId("public", "free"), TableId("public", "locked")
SCHEMA = """
create table locked (id int primary key, v text);
create table free (id int primary key, v text);
insert into locked select g, 'v' from generate_series(1, 20) g;
insert into free select g, 'v' from generate_series(1, 20) g;
"""


@contextmanager
def lock(pg, database, table):
    with pg.connect(database) as connection:
        connection.execute("begin")
        connection.execute(f"lock table {table} in access exclusive mode".encode())
        yield connection
        connection.execute("rollback")


def test_a_locked_table_does_not_keep_others_from_being_read(pg, program, tmp_path):
    database = pg.database("locked")
    pg.execute(database, SCHEMA)
    settings = {"schema.include.list": "public", "snapshot.lock.timeout.ms": "500", **lake_settings(tmp_path)}
    file = write_properties(tmp_path / "c.properties", pg.properties(database, **settings))
    assert program.stream(file).returncode == 0
    pg.execute(database, "update locked set v = 'w'; update free set v = 'w'")

    # A snapshot of both: the free one is read, and the error names the other.
    with lock(pg, database, "locked"):
        done = program.run("snapshot", file)
        said = done.stdout + done.stderr
        assert done.returncode == 1 and "Traceback" not in said, said[-3000:]
        assert "public.locked" in done.stderr and "lock" in done.stderr, said[-3000:]
        assert "public.free: 20 rows" in said, said[-3000:]
        # Whatever asks for the state of the tables is not stopped.
        for command in ("status", "check"):
            assert program.run(command, file).returncode == 0
        assert difference(file, [FREE]) == []
    assert program.run("snapshot", file).returncode == 0
    assert difference(file, [FREE, LOCKED]) == []

    # A table that is to be read again while it is locked: the stream of the others goes on, and it is read later.
    with program.started("run", file, "--max-seconds", "1500") as run:
        with pg.connect(database) as connection:
            connection.execute("alter table locked alter v type varchar(40) using v || '!'")
            connection.execute("begin; lock table locked in access exclusive mode")
            pg.execute(database, "insert into free values (100, 'beside the lock')")
            wait_until(lambda: not difference(file, [FREE]), 60, "the other table")
            pg.execute(database, "insert into free values (101, 'beside the lock')")
            wait_until(lambda: not difference(file, [FREE]), 60, "the other table")
            connection.execute("rollback")
        wait_until(lambda: not difference(file, [FREE, LOCKED]), 90, "the table that is no longer locked")
        assert run.end(2) == 0, run.said()[-3000:]


def test_a_locked_table_does_not_keep_others_from_being_read_in_ranges(pg, program, tmp_path):
    database = pg.database("locked")
    pg.execute(database, SCHEMA + "analyze;")
    settings = {
        "schema.include.list": "public",
        "snapshot.lock.timeout.ms": "500",
        "wal2lake.snapshot.rows.per.partition": "10",
        **lake_settings(tmp_path),
    }
    file = write_properties(tmp_path / "c.properties", pg.properties(database, **settings))
    assert program.stream(file).returncode == 0
    connector = Connector.from_file(file)
    with program.started("run", file, "--max-seconds", "1500", own_java=True) as run:
        run.wait_for("streaming")
        with lock(pg, database, "locked"):
            wanted = {"data-collections": ["public.locked", "public.free"]}
            assert program.run("signal", file, "execute-snapshot", "--data", json.dumps(wanted)).returncode == 0
            run.wait_for("public.free: the incremental snapshot is complete")
            assert "other tables: public.locked could not be read" in run.said()
            done: list[RangeReport] = []
            with pytest.raises(LockedError, match=r"public\.locked"):
                connector.incremental_snapshot([str(LOCKED), str(FREE)], test_session(), on_range=done.append)
            assert {each.range.table for each in done} == {FREE} and all(each.is_applied for each in done)
            assert {each.table for each in connector.plan_incremental()} == {FREE}
            (sessions,) = pg.execute(database, "select count(*) from pg_stat_activity where datname = %s", [database])[
                0
            ]
            assert sessions < 20, "an attempt leaves no session"
        run.wait_for("public.locked: the incremental snapshot is complete")
        assert run.end(2) == 0, run.said()[-3000:]
    assert all(each.is_applied for each in connector.incremental_snapshot([str(LOCKED)], test_session()))
    # It has grown, and would be divided anew.
    pg.execute(database, "insert into locked select g, 'v' from generate_series(21, 120) g; analyze locked")
    with lock(pg, database, "locked"):
        assert len(connector.plan_incremental([LOCKED])) == 2, "the ranges that are known"
    assert len(connector.plan_incremental([LOCKED])) == 12
