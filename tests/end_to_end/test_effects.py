"""What a connector file says has its effect in a run into the lake, too, or the run says that it has none."""

import pytest

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_path, lake_settings, rows, write_properties
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


def test_names_that_match_nothing_are_reported_and_a_table_created_later_is_streamed(pg, program, tmp_path):
    database = pg.database("later")
    pg.execute(database, "create schema inventory; create table unrelated (id int primary key, pay int, v text)")
    file = connector(
        pg,
        database,
        tmp_path,
        **{
            "table.include.list": "inventory.outbox.*,public.unrelatd",
            "column.exclude.list": "public.unrelated.nothing",
            "signal.data.collection": "public.signals",
            "message.key.columns": "public.unrelated:nokey",
            "wal2lake.lake.delete.mode.soft": "public.unrelatd",
        },
    )
    sentences = (
        "The expression inventory.outbox.* of table.include.list matches no table yet",
        "The expression public.unrelatd of table.include.list matches no table yet",
        "The expression public.unrelated.nothing of column.exclude.list matches no column of a captured table.",
        "signal.data.collection names public.signals, which does not exist: no signal can arrive in it.",
        "The expression public.unrelated.nokey of message.key.columns matches no column of a captured table.",
        "The expression public.unrelatd of wal2lake.lake.delete.mode.soft matches no captured table.",
    )
    checked = program.run("check", file)
    assert checked.returncode == 0, checked.stdout
    for sentence in sentences:
        assert f"warn effects: {sentence}" in checked.stdout, checked.stdout
    lines = tmp_path / "lines.jsonl"
    of_events = write_properties(
        tmp_path / "events.properties",
        pg.properties(database, **{"table.include.list": "inventory.outbox.*", "slot.name": f"{database}_events"}),
    )
    active = f"select count(*) from pg_replication_slots where slot_name = '{database}_events' and active"
    with (
        program.started("run", file) as running,
        program.started("envelopes", of_events, "--output", str(lines)) as writing,
    ):
        running.wait_for("streaming")
        wait_until(lambda: pg.execute(database, active)[0][0] == 1, 60, "the stream of events")
        said = running.said()
        for sentence in sentences:
            assert said.count(sentence) == 1, said
        pg.execute(database, "create table inventory.outbox_1 (id int primary key, v text)")
        pg.execute(database, "insert into inventory.outbox_1 values (1, 'a'), (2, 'b')")
        wait_until(lambda: difference(file, [TableId("inventory", "outbox_1")]) == [], 60, "the new table in the lake")
        wait_until(lambda: lines.read_text().count('"op":"c"') == 2, 60, "the new table's events")
        assert "inventory.outbox.* of table.include.list matches no table yet" in writing.said()
        assert writing.end(2) == 0 and running.end(2) == 0, running.said()


def test_rows_are_not_read_where_a_statement_names_no_table(pg, program, tmp_path):
    database = pg.database("selected")
    pg.execute(
        database,
        """create table orders (id int primary key, pay numeric, birth date, pin bytea, name text, at pg_lsn);
        insert into orders select g, g, now(), 'x', 'n', '0/0' from generate_series(1, 9) g""",
    )
    name, half = "snapshot.select.statement.overrides", "select * from public.orders where id <= 3"
    masks = {
        "column.mask.with.5.chars": "public.orders.(pay|name)",
        "column.mask.hash.v2.SHA-256.with.salt.Pepper": "public.orders.birth",
    }
    for wrong, near in (("public.ordrs", "public.orders"), ("public.Orders", "public.orders"), ("x.y", "")):
        file = connector(pg, database, tmp_path, **{name: wrong, f"{name}.{wrong}": half}, **masks)
        refusal = f"{name} names {wrong}, which does not exist: every row of the table that is meant would be read."
        checked = program.run("check", file)
        assert checked.returncode == 1 and f"FAIL effects: {refusal}" in checked.stdout, checked.stdout
        for command, more in (("run", ()), ("snapshot", ()), ("envelopes", ("--output", str(tmp_path / "lines")))):
            done = program.run(command, file, *more)
            assert done.returncode == 1 and refusal in done.stderr, done.stderr
            assert f"Did you mean {near}?" in done.stderr or not near
    rule = {"wal2lake.quality.rule.wrong": "public.orders: after.nothing > 0"}
    file = connector(pg, database, tmp_path, **rule)
    checked, done = program.run("check", file), program.run("run", file)
    assert checked.returncode == done.returncode == 1
    (refusal,) = [line.split("FAIL rules: ")[1] for line in checked.stdout.splitlines() if "FAIL rules: " in line]
    assert refusal in done.stderr, (refusal, done.stderr)
    assert pg.execute("postgres", f"select count(*) from pg_replication_slots where database = '{database}'")[0][0] == 0
    file = connector(
        pg, database, tmp_path, **{name: "public.orders", f"{name}.{database}.public.orders": half}, **masks
    )
    done = program.stream(file)
    assert done.returncode == 0, done.stderr
    assert len(rows(lake_path(load(file), TableId("public", "orders")))) == 3
    clear = (
        "public.orders.pay is of type numeric, and column.mask.with.5.chars leaves its values as they are",
        "public.orders.birth is of type date, and column.mask.hash.v2.SHA-256 leaves its values as they are",
    )
    checked = program.run("check", file)
    events = program.run("envelopes", file, "--output", str(tmp_path / "lines"), "--until-idle", "0.2")
    for sentence in clear:
        assert sentence in done.stderr and sentence in events.stderr and f"warn effects: {sentence}" in checked.stdout
    assert "Pepper" not in done.stderr + checked.stdout + events.stderr
    left_out = "public.orders.at is of type pg_lsn, which events leave out"
    assert events.stderr.count(left_out) == 1 and left_out not in done.stderr


def test_events_whose_slot_was_dropped_report_the_gap(pg, program, tmp_path):
    database = pg.database("gone")
    pg.execute(database, "create table t (id int primary key); insert into t values (1)")
    lines = tmp_path / "lines.jsonl"
    for mode, then in (("initial", "Every row is read again"), ("no_data", "No row is read again")):
        file = connector(pg, database, tmp_path, **{"snapshot.mode": mode})
        arguments = ("envelopes", file, "--output", str(lines), "--until-idle", "0.2")
        first = program.run(*arguments)
        pg.execute(database, "insert into t select max(id) + 1 from t")
        second = program.run(*arguments)
        assert first.returncode == second.returncode == 0
        assert "missing" not in first.stderr + second.stderr
        pg.execute(database, f"select pg_drop_replication_slot('{database}')")
        pg.execute(database, "insert into t select max(id) + 1 from t")
        done = program.run(*arguments)
        assert done.returncode == 0, done.stderr
        assert (
            f"Replication slot {database} no longer exists: the changes made since the last run are missing "
            in done.stderr
        ), done.stderr
        assert then in done.stderr
        pg.execute(database, f"select pg_drop_replication_slot('{database}')")
        lines.unlink()
        lines.with_name("lines.jsonl.position").unlink()
