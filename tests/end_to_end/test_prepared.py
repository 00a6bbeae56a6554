"""Prepared transactions and attached partitions: rows that are older than the moment at which the stream shows them."""

import pytest

from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

NOTES, OTHER, EVENTS = TableId("public", "notes"), TableId("public", "other"), TableId("public", "events")
SCHEMA = """
create table notes (id int primary key, v text);
create table other (id int primary key, v text);
insert into notes select g, 'v' from generate_series(1, 20) g;
insert into other select g, 'v' from generate_series(1, 20) g;
"""


@pytest.fixture(scope="module")
def preparing():
    """A server that takes prepared transactions."""
    from tests.support.cluster import Cluster

    cluster = Cluster.start("debian15", {"max_prepared_transactions": 10})
    yield cluster
    cluster.stop()


def connector(server, database, folder, **more):
    settings = {"schema.include.list": "public", **lake_settings(folder), **more}
    return write_properties(folder / "c.properties", server.properties(database, **settings))


def prepare(server, database, name, statements):
    with server.connect(database) as connection:
        connection.execute(f"begin; {statements}; prepare transaction '{name}'".encode())


def test_prepared_transactions_are_read_when_they_are_committed(preparing, program, tmp_path):
    database = preparing.database("prepared")
    preparing.execute(database, SCHEMA)
    file = connector(preparing, database, tmp_path)
    assert program.stream(file).returncode == 0

    # Prepared before a run and committed in it; prepared and committed in it; rolled back; across two runs.
    prepare(
        preparing, database, "before", "insert into notes values (100, 'before'); update other set v = 'p' where id = 1"
    )
    prepare(preparing, database, "never", "insert into notes values (101, 'never'); delete from other where id = 2")
    prepare(
        preparing, database, "later", "update notes set v = 'later' where id < 5; insert into other values (102, 'l')"
    )
    preparing.execute(database, "insert into notes values (103, 'streamed beside them')")
    with program.started("run", file, "--max-seconds", "1500") as run:
        wait_until(lambda: not difference(file, [NOTES, OTHER]), 60, "what is committed")
        preparing.execute(database, "commit prepared 'before'")
        prepare(preparing, database, "within", "delete from notes where id between 10 and 15")
        preparing.execute(database, "commit prepared 'within'")
        preparing.execute(database, "rollback prepared 'never'")
        wait_until(lambda: not difference(file, [NOTES, OTHER]), 60, "what was prepared")
        assert run.end(2) == 0
    assert program.stream(file).returncode == 0
    preparing.execute(database, "commit prepared 'later'")
    assert program.stream(file).returncode == 0
    assert difference(file, [NOTES, OTHER]) == []

    # A snapshot beside a transaction that is prepared: it is not shown, and comes by the stream.
    prepare(
        preparing,
        database,
        "across",
        "update notes set v = 'across' where id = 20; insert into notes values (104, 'a')",
    )
    done = program.run("snapshot", file)
    assert done.returncode == 0, done.stderr[-3000:]
    assert difference(file, [NOTES, OTHER]) == []
    preparing.execute(database, "commit prepared 'across'")
    assert program.stream(file).returncode == 0
    assert difference(file, [NOTES, OTHER]) == []


def test_a_first_snapshot_says_that_it_waits_for_a_prepared_transaction(preparing, program, tmp_path):
    database = preparing.database("prepared_first")
    preparing.execute(database, SCHEMA)
    prepare(preparing, database, f"open_{database}", "insert into notes values (100, 'prepared before the slot')")
    file = connector(preparing, database, tmp_path)
    with program.started("run", file, "--until-idle", "1", "--max-seconds", "1500") as run:
        wait_until(lambda: waits_for_transactions(preparing, database), 60, "a slot that is being created")
        preparing.execute(database, f"commit prepared 'open_{database}'")
        assert run.end() == 0, run.said()[-3000:]
    assert difference(file, [NOTES, OTHER]) == []


def waits_for_transactions(server, database):
    query = "select 1 from pg_stat_activity where datname = %s and wait_event = 'transactionid'"
    return server.execute("postgres", query, [database])


def test_a_partition_attached_with_rows(preparing, program, tmp_path):
    database = preparing.database("attached")
    preparing.execute(
        database,
        "create table events (id int primary key, v text) partition by range (id);"
        "create table events_1 partition of events for values from (0) to (100);"
        "insert into events select g, 'v' from generate_series(1, 20) g;"
        "create table loaded (v text, gone int, id int primary key); alter table loaded drop gone;"
        "create table down (id int primary key, v text);"
        "insert into loaded select 'loaded', g from generate_series(100, 120) g;"
        "insert into down select g, 'loaded' from generate_series(200, 220) g",
    )
    settings = {"table.include.list": "public.events", "publish.via.partition.root": "true"}
    file = connector(preparing, database, tmp_path, **settings, **{"schema.include.list": None})
    assert program.stream(file).returncode == 0
    assert difference(file, [EVENTS]) == []
    with program.started("run", file, "--max-seconds", "1500") as run:
        preparing.execute(database, "insert into events values (21, 'streamed')")
        wait_until(lambda: not difference(file, [EVENTS]), 60, "the stream")
        preparing.execute(
            database,
            "alter table events attach partition loaded for values from (100) to (200);"
            "insert into events values (150, 'by the root'); update loaded set v = 'by its name' where id = 101",
        )
        wait_until(lambda: not difference(file, [EVENTS]), 90, "the attached rows")
        assert run.end(2) == 0
    # While no run is active; and a partition is detached, whose rows are then not the table's.
    preparing.execute(
        database,
        "alter table events attach partition down for values from (200) to (300);"
        "alter table events detach partition events_1; insert into events values (250, 'by the root')",
    )
    assert program.stream(file).returncode == 0
    assert difference(file, [EVENTS]) == []
