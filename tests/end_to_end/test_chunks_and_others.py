"""Incremental snapshots, and events as lines, where others hide rows or still write."""

import json

import pytest

from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

OPEN, CLOSED = TableId("public", "open"), TableId("public", "closed")
SCHEMA = "".join(
    f"create table {name} (id int primary key, v text); insert into {name} select g, 'v' from generate_series(1, 20) g;"
    for name in ("open", "closed")
)


def ask(folder, *tables):
    signal = {"id": "1", "type": "execute-snapshot", "data": {"data-collections": list(tables), "type": "incremental"}}
    (folder / "signals").write_text(json.dumps(signal) + "\n")


def connector(pg, database, folder, **more):
    settings = {
        "schema.include.list": "public",
        "publication.autocreate.mode": "disabled",
        "signal.enabled.channels": "file",
        "signal.file": str(folder / "signals"),
        "signal.poll.interval.ms": "200",
        "incremental.snapshot.chunk.size": "5",
        **lake_settings(folder),
        **more,
    }
    return write_properties(folder / "chunks.properties", pg.properties(database, **settings))


def test_chunks_of_a_table_wait_for_transactions_that_wrote_before_it_was_published(pg, program, tmp_path):
    database = pg.database("chunks")
    pg.execute(database, f'{SCHEMA} create publication "{database}" for table open')
    file = connector(pg, database, tmp_path, **{"snapshot.mode": "no_data"})
    assert program.stream(file).returncode == 0
    with pg.connect(database) as older:
        older.execute("begin; insert into closed values (100, 'before'); update closed set v = 'before' where id = 3")
        pg.execute(database, f'alter publication "{database}" add table closed')
        with program.started("run", file, "--max-seconds", "1500") as run:
            pg.execute(database, "insert into closed values (101, 'by the stream')")
            ask(tmp_path, "public.closed", "public.open")
            run.wait_for("An incremental snapshot waits")
            pg.execute(database, "insert into open values (100, 'others go on'); delete from closed where id = 7")
            older.execute("delete from closed where id = 4; commit")
            wait_until(lambda: not difference(file, [OPEN, CLOSED]), 60, "both tables")
            assert run.end(2) == 0, run.said()[-3000:]
    # Asked for again, it does not wait for transactions that are open now: the stream has all of their changes.
    with pg.connect(database) as later:
        later.execute("begin; insert into closed values (300, 'in the stream')")
        ask(tmp_path, "public.open")
        done = program.stream(file)
        assert done.returncode == 0, done.stderr[-3000:]
        later.execute("commit")
    assert program.stream(file).returncode == 0
    assert difference(file, [OPEN, CLOSED]) == []


def test_row_security_hides_rows_of_chunks_and_events_from_nobody(pg, program, tmp_path):
    database = pg.database("chunks_hidden")
    role = f"reader_{database}"
    pg.execute(
        database,
        f"{SCHEMA} create role {role} login replication password 'pw'; grant select on all tables in schema public to "
        f'{role}; create publication "{database}" for table open, closed; create policy few on closed using (id <= 5)',
    )
    named = {"database.user": role, "database.password": "pw"}
    file = connector(pg, database, tmp_path, **named)
    owner = write_properties(tmp_path / "owner.properties", pg.properties(database, **lake_settings(tmp_path)))
    assert program.stream(file).returncode == 0
    assert difference(owner, [OPEN, CLOSED]) == []
    pg.execute(database, "alter table closed enable row level security; update closed set v = 'w'")
    with program.started("run", file, "--max-seconds", "1500") as run:
        ask(tmp_path, "public.closed", "public.open")
        run.wait_for("public.closed is skipped by the incremental snapshot")
        pg.execute(database, "insert into open values (100, 'others go on'); insert into closed values (100, 'too')")
        wait_until(lambda: not difference(owner, [OPEN, CLOSED]), 60, "the stream's changes")
        assert run.end(2) == 0, run.said()[-3000:]
        assert "Row-level security" in run.said() and "BYPASSRLS" in run.said()

    # As events: a snapshot ends with an error, chunks skip the table, and the stream has every change.
    events = write_properties(
        tmp_path / "events.properties",
        pg.properties(
            database,
            **named,
            **{
                "table.include.list": "public.open,public.closed",
                "slot.name": "hidden_events",
                "publication.autocreate.mode": "disabled",
                "read.only": "true",
                "signal.enabled.channels": "file",
                "signal.file": str(tmp_path / "signals"),
                "signal.poll.interval.ms": "200",
                "wal2lake.state.path": str(tmp_path / "state2"),
            },
        ),
    )
    arguments = ("--output", str(tmp_path / "events.jsonl"), "--until-idle", "2")
    done = program.run("envelopes", events, *arguments)
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "Row-level security" in said and "Traceback" not in said, said[-3000:]
    pg.execute(database, "alter table closed disable row level security")
    done = program.run("envelopes", events, *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    pg.execute(database, "alter table closed enable row level security")
    ask(tmp_path, "public.closed")
    done = program.run("envelopes", events, *arguments)
    assert done.returncode == 0 and "public.closed is skipped" in done.stderr, done.stdout + done.stderr[-3000:]
