"""Signals to a run into the lake: what each asks for is done, and the lake ends as the source."""

from __future__ import annotations

import json
import re
from pathlib import Path

import deltalake
import pytest

from cdc_core.assemble import Connector
from cdc_core.config.connector import load
from cdc_core.engine.reports import Until
from cdc_core.schema.table import TableId
from cdc_core.snapshot.notifications import Notification, SnapshotStatus
from cdc_core.snapshot.signals.channels import Inbox
from cdc_core.snapshot.signals.parse import Signal
from tests.support.lake import changelog_path, difference, lake_path, lake_settings, rows, write_properties
from tests.support.spark import test_session
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

NOTES, LINES, KEYLESS, TAGS = (TableId("public", name) for name in ("notes", "lines", "keyless", "tags"))
SCHEMA = """
create table notes (id int primary key, title text, body text, n numeric(10,2));
alter table notes alter column body set storage external;
create table lines (a int, b text, v int, at timestamptz, primary key (a, b));
create table keyless (v int);
alter table keyless replica identity full;
create table tags (name text not null, weight int not null, v int);
create unique index tags_name on tags (name);
alter table tags replica identity using index tags_name;
create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048));
insert into notes select g, 'note ' || g, repeat(md5(g::text), 100), g from generate_series(1, 300) g;
insert into lines select g % 20, 'k' || g, g, '2026-01-01Z'::timestamptz + g * interval '1 h'
from generate_series(1, 300) g;
insert into keyless select g % 7 from generate_series(1, 40) g;
insert into tags select 't' || g, 1000 - g, g from generate_series(1, 60) g;
"""


def settings(pg, database: str, folder: Path, **more: str) -> Path:
    return write_properties(
        folder / "signals.properties",
        pg.properties(
            database,
            **{
                "table.include.list": "public.notes,public.lines,public.keyless,public.tags",
                "signal.data.collection": "public.signals",
                "signal.enabled.channels": "source,file",
                "signal.file": str(folder / "signals.txt"),
                "signal.poll.interval.ms": "200",
                "notification.enabled.channels": "log",
                "snapshot.mode": "no_data",
                "incremental.snapshot.chunk.size": "40",
                **lake_settings(folder),
                **more,
            },
        ),
    )


def ask(pg, database: str, kind: str, **data: object) -> None:
    pg.execute(
        database,
        "insert into signals values (gen_random_uuid()::text, %s, %s)",
        [kind, json.dumps({name.replace("_", "-"): value for name, value in data.items()})],
    )


def columns(lake: Path) -> list[str]:
    return [field.name for field in deltalake.DeltaTable(str(lake)).schema().fields]


def run(program, file: Path):
    done = program.run("run", file, "--until-idle", "1", "--max-seconds", "1500")
    assert done.returncode == 0 and "(idle)" in done.stderr, f"{done.stdout}{done.stderr[-3000:]}"
    assert "please report this" not in done.stderr, done.stderr[-3000:]
    return done


@pytest.mark.parametrize("rewritten", ["67108864", "1"])
def test_tables_that_were_never_read_are_filled_in_chunks_beside_the_stream(pg, program, tmp_path, rewritten):
    database = pg.database("signals")
    pg.execute(database, SCHEMA)
    writing = {"wal2lake.merge.rewrite.max.bytes": rewritten, "incremental.snapshot.chunk.size": "40"}
    file = settings(pg, database, tmp_path, **{"wal2lake.changelog.reads": "true", **writing})
    run(program, file)
    # Changes before and behind the signal; large values that no event holds; a row that moves.
    pg.execute(database, "update notes set title = 'changed' where id % 3 = 0; update notes set id = 1000 where id = 7")
    ask(pg, database, "execute-snapshot", data_collections=[r"public\.(notes|lines)", "public.keyless"])
    ask(pg, database, "nonsense")
    pg.execute(database, "insert into signals values ('x', 'execute-snapshot', 'no json')")
    ask(pg, database, "execute-snapshot", data_collections=["public.tags"], surrogate_key="weight")
    ask(pg, database, "log", message="we are at {}")
    pg.execute(database, "delete from lines where a = 3; update tags set v = -v where v % 2 = 0")
    done = run(program, file)
    assert "keyless is skipped by the incremental snapshot" in done.stderr and "we are at" in done.stderr, done.stderr
    assert difference(file, [NOTES, LINES, TAGS]) == []
    config = load(file)
    assert not lake_path(config, TableId("public", "signals")).exists()
    (reads,) = rows(changelog_path(config, LINES), "select count(*) as n from t where \"__op\" = 'r'")
    (held,) = rows(lake_path(config, LINES), "select count(*) as n from t")
    assert reads["n"] == held["n"]

    # What is damaged or missing in the lake is mended; what the condition leaves out stays as it is.
    for table, where in ((NOTES, "id < 100"), (LINES, "a < 5")):
        deltalake.DeltaTable(str(lake_path(config, table))).delete(where)
    deltalake.DeltaTable(str(lake_path(config, NOTES))).update({"title": "'damaged'"}, predicate="id > 200")
    signal = {"data-collections": ["public.notes", "public.lines"]}
    signal["additional-conditions"] = [{"data-collection": "public.notes", "filter": "id < 250"}]
    (tmp_path / "signals.txt").write_text(json.dumps({"id": "1", "type": "execute-snapshot", "data": signal}) + "\n")
    run(program, file)
    assert (tmp_path / "signals.txt").read_text() == ""
    assert difference(file, [LINES]) == []
    damaged = rows(lake_path(config, NOTES), "select id from t where title = 'damaged' order by id")
    assert [row["id"] for row in damaged] == [*range(250, 301), 1000]

    # By the state folder, blocking, a table without a key among them.
    sender = settings(pg, database, tmp_path, **{"signal.enabled.channels": "in-process", **writing})
    data = json.dumps({"data-collections": ["public.notes", "public.keyless"], "type": "blocking"})
    done = program.run("signal", sender, "execute-snapshot", "--data", data)
    assert done.returncode == 0 and "in-process" in done.stderr
    run(program, sender)
    assert difference(sender, [NOTES, LINES, TAGS, KEYLESS]) == []
    pg.drop_database(database)


def test_a_transaction_that_is_open_while_chunks_are_written_is_merged_once_it_commits(pg, program, tmp_path):
    database = pg.database("signals")
    pg.execute(database, SCHEMA)
    file = settings(pg, database, tmp_path)
    run(program, file)
    signal = {"id": "1", "type": "execute-snapshot", "data": {"data-collections": ["public.lines"]}}
    (tmp_path / "signals.txt").write_text(json.dumps(signal) + "\n")
    with pg.connect(database) as connection:
        connection.execute("begin; insert into lines values (100, 'open', 1, now())")
        # The record of the commit begins where the WAL ends now, which is where the stream is when chunks are written.
        run(program, file)
        assert rows(lake_path(load(file), LINES), "select count(*) as n from t") == [{"n": 300}]
        connection.execute("commit")
    run(program, file)
    assert difference(file, [LINES]) == []


def test_stopped_paused_resumed_and_altered_in_between(pg, program, tmp_path):
    database = pg.database("signals")
    pg.execute(database, SCHEMA)
    file = settings(pg, database, tmp_path, **{"incremental.snapshot.chunk.size": "5"})
    config = load(file)
    run(program, file)
    ask(pg, database, "pause-snapshot")
    ask(pg, database, "execute-snapshot", data_collections=["public.notes", "public.lines", "public.tags"])
    ask(pg, database, "pause-snapshot")
    ask(pg, database, "stop-snapshot", data_collections=["public.lines"])
    run(program, file)  # paused: nothing is under way that a bounded run would wait for
    shown = program.run("status", file).stdout
    assert re.search(r"incremental snapshot of public\.notes: paused", shown), shown
    assert "incremental snapshot of public.tags: not begun" in shown, shown
    assert not lake_path(config, NOTES).exists() or rows(lake_path(config, NOTES)) == []
    pg.execute(database, "alter table notes add column more text default 'd'; alter table tags drop column v")
    with program.started("run", file) as running:
        ask(pg, database, "resume-snapshot")
        lake = lake_path(config, NOTES)
        is_made = deltalake.DeltaTable.is_deltatable
        wait_until(lambda: is_made(str(lake)) and len(rows(lake)) > 20, 90, "the first chunks")
        pg.execute(database, "alter table notes add column yet int; update notes set yet = id where id % 50 = 0")
        wait_until(lambda: "yet" in columns(lake) and difference(file, [NOTES]) == [], 90, "all rows", pause=0.5)
        tags = lake_path(config, TAGS)
        wait_until(lambda: tags.exists() and difference(file, [TAGS]) == [], 90, "the next table's rows", pause=0.5)
        assert running.end(2) in (0, -2), running.said()
    assert not lake_path(config, LINES).exists() or rows(lake_path(config, LINES)) == []
    pg.drop_database(database)


def test_signals_of_this_process_and_word_of_what_they_ask_for(pg, tmp_path):
    database = pg.database("signals")
    pg.execute(database, SCHEMA)
    pg.execute(
        database,
        "create table parent (id int primary key, v int); create table child (w int) inherits (parent);"
        "insert into parent select g, g from generate_series(1, 25) g; insert into child values (1, 1, 1), (99, 9, 9)",
    )
    wanted = {"table.include.list": "public.parent,public.lines", "signal.data.collection": ""}
    file = settings(pg, database, tmp_path, **wanted)
    connector, inbox, heard = Connector.from_file(file), Inbox(), list[Notification]()
    connector.initial_snapshot(spark=test_session())
    inbox.put(Signal("1", "execute-snapshot", {"data-collections": ["public.parent", "public.lines"]}))
    report = connector.stream(
        Until(idle_seconds=1, max_seconds=1500), test_session(), inbox=inbox, on_notification=heard.append
    )
    assert report.stopped_by == "idle"
    config, parent = load(file), TableId("public", "parent")
    assert difference(file, [LINES]) == []
    found = rows(lake_path(config, parent), "select id, v from t order by id")
    assert [(row["id"], row["v"]) for row in found] == [(n, n) for n in range(1, 26)], "a child's rows are its own"
    told = [one.type for one in heard]
    assert told[0] is SnapshotStatus.STARTED and told[-1] is SnapshotStatus.COMPLETED
    assert told.count(SnapshotStatus.TABLE_SCAN_COMPLETED) == 2 and SnapshotStatus.IN_PROGRESS in told
    done = [one.additional_data for one in heard if one.type is SnapshotStatus.TABLE_SCAN_COMPLETED]
    assert [(each["scanned_collection"], each["total_rows_scanned"], each["status"]) for each in done] == [
        ("public.parent", "25", "SUCCEEDED"),
        ("public.lines", "300", "SUCCEEDED"),
    ]
    pg.drop_database(database)


def test_an_incremental_snapshot_needs_no_privilege_for_excluded_columns(pg, program, tmp_path):
    database = pg.database("signals")
    pg.execute(database, SCHEMA)
    role = f"reader_{database}"
    pg.execute(
        database,
        f"create role {role} login replication password 'pw'; grant select (id, title, n) on notes to {role}; "
        f"grant select on signals to {role}; create publication {database} for table notes, signals",
    )
    own = {"database.user": role, "database.password": "pw", "publication.autocreate.mode": "disabled"}
    only = {"table.include.list": "public.notes", "column.exclude.list": "public.notes.body"}
    file = settings(pg, database, tmp_path, **own, **only)
    try:
        run(program, file)
        ask(pg, database, "execute-snapshot", data_collections=["public.notes"])
        run(program, file)
        found = rows(lake_path(load(file), NOTES), "select id, title, n from t order by id")
        source = pg.execute(database, "select id, title, n from notes order by id")
        assert [(row["id"], row["title"], row["n"]) for row in found] == source and len(found) == 300
        assert "body" not in columns(lake_path(load(file), NOTES))
    finally:
        pg.drop_database(database)
        pg.execute("postgres", f"drop role {role}")
