"""Tables that join the capture, leave it, and come back: nothing of theirs is missed."""

from contextlib import contextmanager

import pytest

from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

FIRST, SECOND = TableId("public", "first"), TableId("public", "second")
SCHEMA = """
create table first (id int primary key, v text);
create table second (id int primary key, v text);
insert into first select g, 'v' from generate_series(1, 20) g;
insert into second select g, 'v' from generate_series(1, 20) g;
"""


def capturing(pg, database, folder, *tables):
    return write_properties(
        folder / "membership.properties",
        pg.properties(
            database,
            **{
                "table.include.list": ",".join(f"public.{table}" for table in tables),
                "publication.autocreate.mode": "filtered",
                **lake_settings(folder),
            },
        ),
    )


def test_a_table_that_joins_or_returns_is_read_completely(pg, program, tmp_path):
    database = pg.database("membership")
    pg.execute(database, SCHEMA)
    file = capturing(pg, database, tmp_path, "first")
    assert program.stream(file).returncode == 0

    # A transaction that wrote to the newcomer before it was published, and commits once the run waits for it.
    open_one = pg.connect(database)
    open_one.execute("begin")
    open_one.execute("insert into second values (100, 'written before it was published')")

    file = capturing(pg, database, tmp_path, "first", "second")
    with program.started("run", file, "--until-idle", "0.2", "--max-seconds", "1500") as run:
        run.wait_for("older transactions")
        open_one.execute("commit")
        open_one.close()
        assert run.end() == 0, run.said()[-3000:]
    assert difference(file, [FIRST, SECOND]) == []

    # Out of the capture, changed meanwhile, and in again: what it missed never comes by the stream.
    assert program.stream(capturing(pg, database, tmp_path, "first")).returncode == 0
    pg.execute(database, "update second set v = 'changed while nobody looked'; delete from second where id < 5")
    file = capturing(pg, database, tmp_path, "first", "second")
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]
    assert difference(file, [FIRST, SECOND]) == []


@contextmanager
def held_open(pg, database, statements):
    """A transaction that has run ``statements``; committed by the caller, or rolled back."""
    with pg.connect(database) as connection:
        connection.execute("begin")
        connection.execute(statements)
        yield connection


def managed_by_others(pg, database, folder):
    return write_properties(
        folder / "managed.properties",
        pg.properties(
            database,
            **{
                "schema.include.list": "public,other",
                "publication.autocreate.mode": "disabled",
                **lake_settings(folder),
            },
        ),
    )


def test_a_table_that_others_publish_is_read_after_the_transactions_that_the_stream_lacks(pg, program, tmp_path):
    database = pg.database("managed")
    third, fourth = TableId("other", "third"), TableId("public", "fourth")
    pg.execute(
        database,
        f"{SCHEMA}; create schema other; create table other.third (id int primary key, v text);"
        "insert into other.third select g, 'v' from generate_series(1, 20) g;"
        f'create publication "{database}" for table first',
    )
    file = managed_by_others(pg, database, tmp_path)
    assert program.stream(file).returncode == 0

    # While down, by somebody else: the run begins without the table, and reads it once the transaction has ended.
    with held_open(pg, database, "insert into second values (100, 'before it was published')") as older:
        pg.execute(database, f'alter publication "{database}" add table second')
        with program.started("run", file, "--max-seconds", "1500") as run:
            run.wait_for("public.second is not read yet")
            pg.execute(database, "insert into first values (100, 'others go on')")
            wait_until(lambda: not difference(file, [FIRST]), 60, "the other table")
            run.wait_for("older transactions")
            older.execute("commit")
            wait_until(lambda: not difference(file, [FIRST, SECOND]), 60, "the new table")

            # While streaming: with its whole schema, a new table, and one that leaves and returns.
            with held_open(pg, database, "delete from other.third where id = 3") as writing:
                pg.execute(database, f'alter publication "{database}" add tables in schema other')
                pg.execute(database, "insert into other.third values (100, 'by the stream')")
                run.wait_for("other.third could not be re-read")
                pg.execute(database, "insert into first values (101, 'others go on')")
                wait_until(lambda: not difference(file, [FIRST]), 60, "the other table")
                writing.execute("commit")
            wait_until(lambda: not difference(file, [FIRST, SECOND, third]), 60, "the schema's table")
            pg.execute(
                database, f'create table fourth (id int primary key); alter publication "{database}" add table fourth'
            )
            pg.execute(database, "insert into fourth select generate_series(1, 5)")
            wait_until(lambda: not difference(file, [fourth]), 60, "the table made meanwhile")
            pg.execute(database, f'alter publication "{database}" drop table second')
            pg.execute(database, "update second set v = 'not in the stream'; delete from second where id < 5")
            with held_open(pg, database, "insert into second values (200, 'nor this one')") as writing:
                pg.execute(database, f'alter publication "{database}" add table second')
                run.wait_for("public.second could not be re-read")
                writing.execute("commit")
            wait_until(lambda: not difference(file, [FIRST, SECOND, third, fourth]), 60, "the table that came back")
            assert run.process.poll() is None, run.said()
            run.end(2)

    # Out and in again while nobody streams; a schema as well, also with a table that was moved into it.
    pg.execute(database, f'alter publication "{database}" drop table second')
    pg.execute(database, f'alter publication "{database}" drop tables in schema other')
    pg.execute(database, "update second set v = v || '!'; delete from other.third where id > 10")
    pg.execute(database, "create table moved (id int primary key); insert into moved select generate_series(1, 5)")
    pg.execute(database, f'alter publication "{database}" add table second')
    pg.execute(database, f'alter publication "{database}" add tables in schema other')
    pg.execute(database, "alter table moved set schema other; insert into other.moved values (9)")
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]
    assert difference(file, [FIRST, SECOND, third, fourth, TableId("other", "moved")]) == []
