"""decoderbufs and wal2json into the lake by the whole program: killed at durable steps, the lake equals the source."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.cluster import PLUGIN_LIBRARIES, Cluster
from tests.support.lake import changelog_path, difference, doubled_events, lake_settings, rows, write_properties
from tests.support.program import Program

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

TABLES = [
    TableId("public", name)
    for name in ("notes", "lines", "whole", "log", "days", "parts_1", "parts_2", "emptied", "emptied_wide", "bare")
]
SCHEMA = """
create table notes (id int primary key, title varchar(40), body text, n numeric(10,2));
alter table notes alter column body set storage external;
create table lines (a int, b text, v int, primary key (a, b));
create table whole (id int, body text, n int);
alter table whole replica identity full;
alter table whole alter column body set storage external;
create table log (at timestamptz default clock_timestamp(), what text);
create table days (id int primary key, d date, ts timestamp, tz timestamptz, ti time, m numeric(12, 2), by bytea,
    f4 real, f8 double precision, b boolean, j jsonb, twice int generated always as (id * 2) stored);
create table parts (id int primary key, v text) partition by range (id);
create table parts_1 partition of parts for values from (0) to (100);
create table parts_2 partition of parts for values from (100) to (200);
create table emptied (id int primary key);
create table emptied_wide (id int primary key, v text);
create table bare (a int, b text);
insert into notes select g, 'note ' || g, repeat(md5(g::text), 100), g from generate_series(1, 50) g;
insert into lines select g, 'k' || g, g from generate_series(1, 50) g;
insert into whole select g, repeat(md5(g::text), 100), g from generate_series(1, 20) g;
insert into log (what) select 'line ' || g from generate_series(1, 50) g;
insert into parts select g, 'p' from generate_series(1, 99, 10) g;
insert into emptied select g from generate_series(1, 20) g;
insert into emptied_wide select g, 'v' from generate_series(1, 20) g;
insert into bare select g, 'v' from generate_series(1, 20) g;
insert into days values (1, '2026-11-23', '2026-11-23 01:02:03.000004', '2026-11-23 01:02:03.5+02', '12:34:56.7',
    -12.34, '\\x00ff', 1.5, 0.1, true, '{"a": "b\\"c"}');
"""
# Inserts, updates that leave the large text alone, a key change of such a row, and deletes.
CHANGES = r"""
begin;
insert into notes select {r} * 100 + g, 'new', repeat(md5(g::text), 100), g from generate_series(1, 5) g;
update notes set title = 'round {r}' where id % 3 = 0;
insert into log (what) values ('round {r} "quoted" \ ' || chr(9) || 'é');
commit;
update lines set v = v + {r} where a % 2 = 0;
update notes set id = id + 100000 where id = {r} + 10;
update whole set n = n + 1 where id % 2 = 0;
delete from whole where id = {r};
insert into days select {r} * 10 + g, date '2026-11-23' - g * 100000,
    timestamp '2026-11-23 00:00' - g * interval '300 years',
    timestamptz '2026-11-23 01:02:03.000004+00' + g * interval '1 minute',
    time '23:59' - g * interval '1 hour', g * -100.01, decode(md5(g::text), 'hex'),
    g / 3.0, g / 7.0, g % 2 = 0, jsonb_build_object('a', g)
from generate_series(1, 5) g;
update parts set id = id + 100 where id = {r} * 10 + 1;
begin;
delete from lines where a = {r};
delete from notes where id = {r};
insert into log (what) values ('end {r}');
commit;
"""
DDL = """
alter table lines add column e int default 7;
update lines set v = v + 1 where a = 20;
alter table notes drop column n;
insert into notes values (7000, 'after', 'x');
alter table notes rename column title to heading;
update notes set heading = 'renamed' where id = 7000;
alter table log alter column what type varchar(500);
insert into log (what) values ('typed');
"""
# A transaction with more rows than are decoded at once, and of more bytes than a segment.
LARGE = """
begin;
insert into log (what) select 'large ' || g from generate_series(1, 12000) g;
insert into notes select 8000 + g, 'large', repeat(md5(g::text), 3200) from generate_series(1, 180) g;
commit;
"""
KILLS = (
    failpoints.AFTER_SLOT_CREATED,
    failpoints.AFTER_SPOOL,
    failpoints.AFTER_APPEND,
    failpoints.BEFORE_CONFIRM,
    failpoints.AFTER_CONFIRM,
)
# A translator that keeps nothing is killed where its plug-in's positions decide what is sent again.
FEWER = {"wal2json": (KILLS[0], KILLS[3]), "wal2json-1": (KILLS[0], KILLS[1])}
PLUGINS = {
    "decoderbufs": {"plugin.name": "decoderbufs"},
    "wal2json": {"plugin.name": "wal2json"},
    "wal2json-1": {"plugin.name": "wal2json", "slot.stream.params": "format-version=1"},
}


@pytest.mark.parametrize("name", PLUGINS)
def test_the_lake_equals_the_source(debian15: Cluster, program: Program, tmp_path: Path, name: str) -> None:
    pg, database = debian15, debian15.database("plugin")
    pg.psql(database, "-qc", SCHEMA)
    settings = {"schema.include.list": "public", **lake_settings(tmp_path), **PLUGINS[name]}
    file = write_properties(tmp_path / "plugin.properties", pg.properties(database, **settings))
    try:
        follow(pg, program, database, file, FEWER.get(name, KILLS))
    finally:
        pg.drop_database(database)


def follow(pg: Cluster, program: Program, database: str, file: Path, kills: tuple[str, ...]) -> None:
    """Kills, then changes of all kinds, compared after each."""
    for number, place in enumerate(kills):
        program.killed_at(place, file)
        pg.psql(database, "-qc", CHANGES.replace("{r}", str(number + 1)))
    settle(program, file)
    assert not difference(file, TABLES)
    # A key's rows and a transaction that is longer than a segment; what the plug-ins do not send.
    pg.psql(database, "-qc", DDL)
    pg.psql(database, "-qc", LARGE)
    pg.psql(database, "-qc", "truncate emptied, emptied_wide; insert into emptied values (100)")
    # Only rows that are inserted need no replica identity.
    pg.psql(database, "-qc", "insert into bare values (100, 'new')")
    settle(program, file)
    assert not difference(file, TABLES)
    for table in TABLES[:6]:
        assert doubled_events(file, table) == 0


def test_a_plug_in_that_the_server_does_not_allow(debian15: Cluster, program: Program, tmp_path: Path) -> None:
    """``check`` and ``run`` name the setting, its value and the statement, which is run as printed; nothing is lost.

    A server without the setting loads the plug-in, and nothing is said.
    """
    pg, database = debian15, debian15.database("allowed")
    pg.psql(database, "-qc", "create table t (id int primary key, v text); insert into t values (1, 'old')")
    pg.execute(database, f"create role {database} login replication password 'pw'; grant select on t to {database}")
    role = {"database.user": database, "database.password": "pw"}
    settings = pg.properties(database, **role, **{"plugin.name": "wal2json", "table.include.list": "public.t"})
    file = write_properties(tmp_path / "c.properties", settings | lake_settings(tmp_path))
    forbid = f"alter database {database} set {PLUGIN_LIBRARIES} = pgoutput, test_decoding"

    def refused(done: subprocess.CompletedProcess[str]) -> str:
        said = done.stdout + done.stderr
        assert done.returncode == 1, said
        assert "The server does not allow output plug-in wal2json: output_plugin_libraries, set by" in said
        assert f"""ALTER DATABASE "{database}", is 'pgoutput, test_decoding'.""" in said
        assert "A slot keeps its position." in said
        [statement] = [line.strip() for line in said.splitlines() if line.strip().startswith("ALTER ")]
        return statement

    # Without a slot, and with one that has changes.
    for number in (10, 20):
        if PLUGIN_LIBRARIES in pg.settings:
            pg.execute("postgres", forbid)
            statement = refused(program.run("check", file, own_java=True))
            assert refused(program.stream(file)) == statement
            pg.psql(database, "-qc", statement)
        done = program.run("check", file, own_java=True)
        assert done.returncode == 0 and "The server loads wal2json." in done.stdout, done.stdout + done.stderr
        assert PLUGIN_LIBRARIES not in done.stdout
        settle(program, file)
        pg.psql(database, "-qc", f"insert into t values ({number}, 'new'); update t set v = 'changed' where id = 1")
    settle(program, file)
    assert not difference(file, [TableId("public", "t")])
    # Both pairs of changes came from the slot: a snapshot instead of the first one would have its rows only.
    [counted] = rows(changelog_path(load(file), TableId("public", "t")), "select count(*) as changes from t")
    assert counted == {"changes": 4}


def settle(program: Program, file: Path) -> None:
    """Run until everything is merged."""
    done = program.stream(file)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


def test_check_and_envelopes(debian15: Cluster, program: Program, tmp_path: Path) -> None:
    """The events of one WAL through each plug-in are equal; ``check`` says what a plug-in does not send."""
    pg, database = debian15, debian15.database("plugin_events")
    pg.psql(database, "-qc", SCHEMA + "alter table bare replica identity full; create publication p for all tables;")
    names = {"pgoutput": "pgoutput", "decoderbufs": "decoderbufs", "wal2json": "wal2json"}
    files = {}
    for name in names:
        settings = {"plugin.name": name, "slot.name": name, "publication.name": "p", "snapshot.mode": "no_data"}
        folder = {"wal2lake.sinks": "noop", "wal2lake.state.path": str(tmp_path / name)}
        more = {**settings, **folder, "schema.include.list": "public"}
        files[name] = write_properties(tmp_path / f"{name}.properties", pg.properties(database, **more))
        pg.execute(database, "select pg_create_logical_replication_slot(%s, %s)", [name, name])
    try:
        for number in (1, 2):
            pg.psql(database, "-qc", CHANGES.replace("{r}", str(number)))
        for name, missing in (("decoderbufs", "TRUNCATE"), ("wal2json", "null")):
            done = program.run("check", files[name], own_java=True)
            assert done.returncode == 0 and name in done.stdout and missing in done.stdout, done.stdout + done.stderr
        made = {}
        for name, file in files.items():
            done = program.run(
                "envelopes", file, "--output", str(tmp_path / f"{name}.jsonl"), "--until-idle", "0.5", own_java=True
            )
            assert done.returncode == 0, done.stdout + done.stderr
            made[name] = [rows_of(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        assert len(made["pgoutput"]) > 100
        # A stored generated column is sent by pgoutput from PostgreSQL 18 on.
        assert made["decoderbufs"] == made["wal2json"]
        assert [without(one, "twice") for one in made["wal2json"]] == made["pgoutput"]
    finally:
        pg.drop_database(database)


def rows_of(line: str) -> dict[str, Any]:
    """Topic, key, operation and rows of an event."""
    one = json.loads(line)
    key, value = ((one[side] or {}).get("payload") for side in ("key", "value"))
    row = {name: (value or {}).get(name) for name in ("op", "before", "after")}
    return {"topic": one["topic"], "key": key, **row}


def without(event: dict[str, Any], column: str) -> dict[str, Any]:
    """The event without a column of its rows."""
    return {
        side: {name: one for name, one in row.items() if name != column} if isinstance(row, dict) else row
        for side, row in event.items()
    }
