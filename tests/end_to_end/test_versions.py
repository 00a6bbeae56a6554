"""The same on each version of PostgreSQL: snapshot, types, DDL, identities, partitions, what a publication sends."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, lake_settings, rows, write_properties
from tests.support.program import Program
from tests.unit.types.source_table import SourceTable

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

SERVERS = ("debian15", "released16", "released17", "embedded18")
SAME = [TableId("public", name) for name in ("plain", "whole", "indexed", "keyless", "parts")]
TABLES = """
create table plain (id int primary key, v text, big text);
alter table plain alter big set storage external;
create table whole (id int primary key, v text, big text);
alter table whole alter big set storage external;
alter table whole replica identity full;
create table indexed (id int, code int not null, v text, big text, primary key (id));
alter table indexed alter big set storage external;
create unique index indexed_code on indexed (code);
alter table indexed replica identity using index indexed_code;
create table keyless (a int, v text);
alter table keyless replica identity full;
create table parts (id int, v text, primary key (id)) partition by range (id);
create table parts_1 partition of parts for values from (0) to (100);
create table some_rows (id int primary key, n int not null, v text);
alter table some_rows replica identity full;
create table some_columns (id int primary key, v text, hidden text);
create table generated (id int primary key, v text, twice int generated always as (id * 2) stored);
"""
ROWS = """
insert into plain select {first} + g, 'é ' || g, repeat('long ' || g, 1000) from generate_series(1, 9) g;
insert into whole select {first} + g, 'é ' || g, repeat('long ' || g, 1000) from generate_series(1, 9) g;
insert into indexed select {first} + g, -{first} - g, 'v', repeat('long ' || g, 1000) from generate_series(1, 9) g;
insert into keyless select {first} + g % 3, 'v' from generate_series(1, 9) g;
insert into parts select {first} + g, 'v' from generate_series(1, 9) g;
insert into some_rows select {first} + g, g, 'v' from generate_series(1, 20) g;
insert into some_columns select {first} + g, 'v', 'hidden' from generate_series(1, 9) g;
insert into generated select {first} + g, 'v' from generate_series(1, 9) g
"""
CHANGES = (
    "create table parts_2 partition of parts for values from (100) to (1000)",
    ROWS.format(first=100),
    "update plain set v = v || '.'; update whole set v = v || '.'; update indexed set v = v || '.'",
    "update plain set id = id + 1000 where id < 4; update whole set id = id + 1000 where id < 4",
    "update indexed set code = code - 1000 where id < 4; delete from indexed where id = 5",
    "delete from plain where id = 8; delete from keyless where a = 1; update keyless set v = 'w' where a = 2",
    "update parts set id = id + 500 where id < 4; delete from parts where id = 6",
    "update some_rows set n = n + 8 where id < 110; delete from some_rows where id = 20",
    "update some_columns set v = 'new', hidden = 'new'; update generated set id = id + 50 where id < 3",
    "select pg_logical_emit_message(true, 'told', 'inside'), pg_logical_emit_message(false, 'told', 'outside')",
    # Larger than what the server keeps in memory: sent while it is in progress, with a part that is rolled back.
    "begin; insert into plain select g, 'large' from generate_series(5000, 9000) g; savepoint s;"
    "insert into plain select g, 'lost' from generate_series(10000, 12000) g; rollback to s;"
    "alter table plain add column more int default 7; alter table plain drop column v; alter table plain rename big to"
    " much; insert into plain (id, more) select g, g from generate_series(13000, 14000) g; commit",
    "truncate whole",
    "insert into whole values (1, 'after', null)",
)


@pytest.mark.parametrize("flavour", SERVERS)
def test_a_lake_is_equal_on_each_version(
    flavour: str, program: Program, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    pg: Cluster = request.getfixturevalue(flavour)
    version = int(pg.execute("postgres", "select current_setting('server_version_num')::int / 10000")[0][0])
    assert flavour.endswith(str(version))
    database = pg.database("version")
    pg.execute(database, f"alter database {database} set logical_decoding_work_mem = '64kB'")
    types = SourceTable.make(pg, database)
    drawn = types.draw(15, seed=7)
    types.insert(drawn, 0)
    pg.execute(database, TABLES)
    pg.execute(database, ROWS.format(first=0))
    options = ["publish_via_partition_root", *(["publish_generated_columns = stored"] if version >= 18 else [])]
    pg.execute(
        database,
        f"create publication {database} for table {', '.join(table.table for table in SAME)}, generated, every_type,"
        f" some_rows where (n > 10), some_columns (id, v) with ({', '.join(options)})",
    )
    settings = {
        "publication.autocreate.mode": "disabled",
        "wal2lake.streaming.transactions": "on",
        **lake_settings(tmp_path),
    }
    file = write_properties(tmp_path / "version.properties", pg.properties(database, **settings))

    def follow() -> None:
        done = program.stream(file)
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        assert difference(file, SAME) == []

    follow()
    for statement in CHANGES:
        pg.execute(database, statement)
    types.insert(drawn, 100_000)
    pg.execute(database, "update every_type set marker = id where id % 2 = 0")
    follow()
    done = program.run("reconcile", file, "public.every_type")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]

    def lake(table: str) -> list[dict[str, object]]:
        return sorted(rows(tmp_path / "lake" / "test" / "public" / table), key=lambda row: int(str(row["id"])))

    wanted = pg.execute(database, "select id, n, v from some_rows where n > 10 order by id")
    assert [(row["id"], row["n"], row["v"]) for row in lake("some_rows")] == wanted
    assert "hidden" not in lake("some_columns")[0]
    assert {row["v"] for row in lake("some_columns")} == {"new"}
    assert ("twice" in lake("generated")[0]) == (version >= 18)
    wanted = pg.execute(database, "select id, twice from generated order by id")
    assert [row["id"] for row in lake("generated")] == [id for id, _ in wanted]
    if version >= 18:
        assert [row["twice"] for row in lake("generated")] == [twice for _, twice in wanted]
    streamed = pg.execute(
        "postgres", "select stream_txns from pg_stat_replication_slots where slot_name = %s", [database]
    )
    assert streamed[0][0] > 0
    pg.drop_database(database)
