"""The whole line, from the server to the lake, through the command as a user runs it."""

import json
import signal

import pytest

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import changelog_path, difference, lake_path, lake_settings, rows, write_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

KINDS, LATER, ORDERS = TableId("public", "kinds"), TableId("public", "later"), TableId("public", "orders")

SCHEMA = """
create type mood as enum ('sad', 'ok', 'happy');
create table kinds (
  id int primary key, b boolean, i2 smallint, i8 bigint, f4 real, f8 double precision, n numeric(12, 3),
  c char(5), vc varchar(20), t text, by bytea, d date, ti time(3), ts timestamp, tz timestamptz, u uuid,
  j json, jb jsonb, m mood, ai int[], at text[], an numeric(10, 2)[]
);
create table orders (id int primary key, total numeric(10, 2), note text);
insert into orders select g, g, 'order ' || g from generate_series(1, 100) g;
"""
KIND = """
insert into kinds values ({id}, true, -32768, 9223372036854775807, 'NaN', 1e308, 123456789.125, 'ab', 'vär\u20acchar',
  E'tab\\there, ''quote'', line\\nbreak', '\\x00ff10', '0099-02-28', '23:59:59.999', '1582-10-10 01:02:03.123456',
  '2026-03-29 02:30:00.5+02', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{{"a": [1,  2]}}', '{{"b": null}}', 'happy',
  '{{1,null,-3}}', '{{"a,b","c\\"d",null}}', '{{1.50,null}}'),
  ({id} + 1, null, null, null, null, null, null, null, '', '', '',
   null, null, null, null, null, null, null, null, '{{}}', '{{}}', null)
"""


def settings(folder, **more):
    return {
        "schema.include.list": "public",
        **lake_settings(folder),
        **more,
    }


def test_from_an_empty_lake_to_a_table_that_changes_its_shape(pg, program, tmp_path):
    database = pg.database("line")
    pg.execute(database, SCHEMA + ";" + KIND.format(id=1))
    rule = {"wal2lake.quality.rule.positive": "public.orders: after.total > 0"}
    file = write_properties(tmp_path / "line.properties", pg.properties(database, **settings(tmp_path, **rule)))
    config = load(file)
    with program.started("run", file) as running:
        running.wait_for("snapshot: 102 rows of 2 tables", 150)
        pg.execute(database, KIND.format(id=3))
        pg.execute(database, "update kinds set t = 'new', ai = null where id = 1; delete from kinds where id = 2")
        pg.execute(database, "insert into orders values (200, -5, 'refused'), (201, 5, 'fine')")
        pg.execute(database, "alter table orders add column colour text default 'red'")
        pg.execute(database, "insert into orders values (202, 6, 'shaped', 'blue')")
        wait_until(lambda: lake_has(config, ORDERS, "colour = 'blue'"), 90, "the new column in the lake")
        # WAL of another database moves the slot of this one.
        confirm_what_others_write(pg, database)
        # A table that comes while streaming is there from the next run on.
        pg.execute(database, "create table later (id int primary key, v text); insert into later values (1, 'one')")
        assert running.end(signal.SIGTERM) == 0, running.said()
        assert "1 rows quarantined" in running.said()
        assert running.said().rstrip().endswith("(request)")
    pg.execute(database, "insert into later values (2, 'two'); update orders set colour = 'green' where id < 10")
    done = program.stream(file)
    assert done.returncode == 0, done.stderr
    assert difference(file, [KINDS, LATER]) == []
    # What the rule refused is not in the lake but kept aside, with its reason.
    (orders,) = difference(file, [ORDERS])
    assert orders.extra - orders.missing == -1
    aside = tmp_path / "lake" / "test" / "__quarantine" / "public" / "orders"
    assert len(rows(aside)) == 1
    assert [row["colour"] for row in rows(lake_path(config, ORDERS), "select colour from t where id = 202")] == ["blue"]
    assert rows(
        changelog_path(config, ORDERS), "select \"after\"['colour'] as c from t where \"after\"['id'] = 202"
    ) == [{"c": "blue"}]
    status = program.run("status", file, "--json", "--rows")
    assert status.returncode == 0, status.stderr
    told = json.loads(status.stdout)
    assert told["slot_exists"]
    assert {row["table"].removeprefix("public."): row["lake_rows"] for row in told["tables"]} == {
        "kinds": 3,
        "later": 2,
        "orders": 102,
    }


def test_a_second_snapshot_amid_open_transactions_stays_exact(pg, program, tmp_path):
    database = pg.database("again")
    pg.execute(database, SCHEMA)
    file = write_properties(tmp_path / "again.properties", pg.properties(database, **settings(tmp_path)))
    assert program.stream(file).returncode == 0
    with pg.connect(database) as early, pg.connect(database) as late:
        for connection, sign in ((early, 1), (late, 2)):
            connection.autocommit = False
            connection.execute(f"insert into orders values ({sign} * 1000, {sign}, 'open before')")
            connection.execute(f"update orders set total = total + 1 where id % 7 = {sign}")
        pg.execute(
            database, "update orders set note = 'changelog only' where id % 7 = 3; delete from orders where id = 7"
        )
        with program.started("snapshot", file, "public.orders") as running:
            early.commit()
            assert running.end(seconds=150) == 0, running.said()
        late.execute("delete from orders where id = 2000")
        late.commit()
    done = program.stream(file)
    assert done.returncode == 0, done.stderr
    assert difference(file, [ORDERS, KINDS]) == []
    # A slot that vanished is not replaced in silence: what came between would be lost.
    pg.execute(database, "select pg_drop_replication_slot(%s)", [database])
    done = program.stream(file)
    assert done.returncode == 1
    assert f"Replication slot {database} no longer exists" in done.stderr
    assert pg.execute(database, "select 1 from pg_replication_slots where slot_name = %s", [database]) == []
    pg.execute(database, "delete from orders where id = 50")
    assert program.run("snapshot", file).returncode == 0
    assert difference(file, [ORDERS, KINDS]) == []


def test_without_retries_a_restart_ends_the_run_with_a_sentence_and_the_next_continues(program, tmp_path):
    server = Cluster.start("debian15")
    try:
        database = server.database("restart")
        server.execute(database, SCHEMA)
        once = {**settings(tmp_path), "errors.max.retries": "0"}
        file = write_properties(tmp_path / "restart.properties", server.properties(database, **once))
        with program.started("run", file) as running:
            running.wait_for("snapshot: 100 rows", 150)
            wait_until(lambda: is_streaming(server, database), 90, "the stream")
            server.execute(database, "update orders set total = 0 where id < 50")
            server.restart()
            assert running.end() == 1
            said = running.said()
            assert "Traceback" not in said
            assert said.count("wal2lake: ") == 1
        server.execute(database, "delete from orders where id > 90")
        done = program.stream(file)
        assert done.returncode == 0, done.stderr
        assert difference(file, [ORDERS, KINDS]) == []
    finally:
        server.stop()


def lake_has(config, table, condition):
    try:
        return rows(lake_path(config, table), f"select 1 from t where {condition}")
    except Exception:  # the column is not there yet
        return []


def is_streaming(server, slot):
    return server.execute("postgres", "select 1 from pg_replication_slots where slot_name = %s and active", [slot])


def confirm_what_others_write(pg, slot):
    other = pg.database("others")
    pg.execute(other, "create table busy as select g from generate_series(1, 20000) g")
    ((target,),) = pg.execute(other, "select pg_current_wal_insert_lsn()::text")
    wait_until(
        lambda: pg.execute(
            "postgres",
            "select 1 from pg_replication_slots where slot_name = %s and confirmed_flush_lsn >= %s::pg_lsn - 200",
            [slot, target],
        ),
        60,
        "the confirmation of WAL that others wrote",
    )


def test_a_deferrable_key_may_be_held_by_two_rows_within_a_transaction(pg, program, tmp_path):
    """Each update meets a row that has its new key until the same statement moves it on."""
    database, moved = pg.database("deferred"), TableId("public", "moved")
    pg.execute(
        database,
        "create table moved (id int primary key deferrable initially deferred, v text); "
        "alter table moved replica identity full; insert into moved select g, 'v' || g from generate_series(1, 9) g",
    )
    file = write_properties(tmp_path / "deferred.properties", pg.properties(database, **settings(tmp_path)))
    assert program.stream(file).returncode == 0
    pg.execute(database, "update moved set id = id + 1")
    pg.execute(database, "update moved set v = 'fifth' where id = 5; delete from moved where id = 10")
    pg.execute(database, "insert into moved values (7, 'again'); delete from moved where id = 7 and v <> 'again'")
    done = program.stream(file)
    assert done.returncode == 0, done.stderr
    assert difference(file, [moved]) == []
