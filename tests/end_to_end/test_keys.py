"""Keys of which the stream lacks a column, or that only the lake considers equal: no change reaches two rows."""

import re

import pytest

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.lake import lake_path, lake_settings, rows, write_properties

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

COLUMNS = "a int not null, b int not null, g int generated always as (b * 10) stored not null"
TABLES = {
    "composite": "primary key (a, g)",
    "computed": "primary key (g)",
    "chosen": "id int primary key, unique (a, g)",
    "whole": "primary key (a, g)",
    "indexed": "primary key (a, g), unique (b)",
    "plain": "primary key (a, b)",
}
IDENTITIES = """
alter table chosen replica identity using index chosen_a_g_key;
alter table whole replica identity full;
alter table indexed replica identity using index indexed_b_key;
"""
SCHEMA = "".join(f"create table {name} ({COLUMNS}, {key});" for name, key in TABLES.items()) + IDENTITIES
UNSENT = {"composite": "g", "computed": "g", "chosen": "g"}
BOUNDS = """
create table bounds (k int[] primary key, v int);
create table tags (id int primary key, t int[]);
insert into bounds values ('{1,2}', 1), ('[0:1]={1,2}', 2), ('[2:3]={1,2}', 3), ('{{1,2}}', 4), ('{}', 5);
insert into tags values (1, '[0:1]={1,2}'), (2, '{1,2}'), (3, '[-2:-1]={5,null}'), (4, null);
"""
BOUNDS_CHANGED = """
update bounds set v = 20 where k = '[0:1]={1,2}';
delete from bounds where k = '[2:3]={1,2}';
insert into bounds values ('[0:0][1:2]={{1,2}}', 6), ('[5:6]={1,2}', 7);
update bounds set k = '[7:8]={1,2}' where k = '[5:6]={1,2}';
update tags set t = '[4:5]={1,2}' where id = 2;
update tags set t = '{5,null}' where id = 3;
"""


def inserts(name: str, *pairs: tuple[int, int]) -> str:
    values = ", ".join(f"({a}, {b}{f', {a * 100 + b}' if name == 'chosen' else ''})" for a, b in pairs)
    return f"insert into {name} (a, b{', id' if name == 'chosen' else ''}) values {values};"


def changes(name: str) -> str:
    return f"delete from {name} where b = 1; update {name} set a = a + 50 where b = 2; {inserts(name, (9, 9))}"


def unequal(pg, database, config, names) -> set[str]:
    """The tables of which the lake's rows are not the source's, lower bounds included."""
    found = set()
    for name in names:
        columns = {"bounds": ("k", "v"), "tags": ("id", "t"), "chosen": ("a", "b", "id")}.get(name, ("a", "b"))
        wanted = pg.execute(database, f"select {', '.join(f'{c}::text' for c in columns)} from {name}")
        held = rows(lake_path(config, TableId("public", name)))
        told = [tuple(_text(row, column) for column in columns) for row in held]
        if sorted(told, key=repr) != sorted(wanted, key=repr):
            found.add(name)
    return found


def _text(row, column):
    rescued = dict(row["__rescued"] or ())
    value = rescued.get(column, row[column])
    if isinstance(value, list):
        return "{" + ",".join("NULL" if each is None else str(each) for each in value) + "}"
    return None if value is None else str(value)


def test_a_change_reaches_one_row_whatever_of_its_key_is_sent(debian15, program, tmp_path):
    pg, database = debian15, debian15.database("keys")
    filled = "".join(inserts(name, (1, 1), (1, 2), (1, 3), (2, 4)) for name in TABLES)
    pg.execute(database, SCHEMA + filled + BOUNDS)
    settings = {"schema.include.list": "public", **lake_settings(tmp_path)}
    file = write_properties(tmp_path / "keys.properties", pg.properties(database, **settings))
    config, every = load(file), {*TABLES, "bounds", "tags"}
    checked = program.run("check", file)
    for name, column in UNSENT.items():
        assert f"does not send {column} of the replica identity of public.{name}" in checked.stdout, checked.stdout
    done = program.stream(file)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert unequal(pg, database, config, every) == set()
    # Inserts need no key.
    pg.execute(database, "".join(inserts(name, (3, 5)) for name in TABLES))
    done = program.stream(file)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert unequal(pg, database, config, every) == set() and program.paused(file) == {}
    pg.execute(database, "".join(map(changes, TABLES)) + BOUNDS_CHANGED)
    done = program.stream(file)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr[-3000:]
    assert unequal(pg, database, config, every) == set(UNSENT)
    paused = program.paused(file)
    assert set(paused) == {f"public.{name}" for name in UNSENT}
    for name in UNSENT:
        found = paused[f"public.{name}"]
        assert "does not send g of its replica identity" in found["reason"]
        assert re.search(r"REPLICA IDENTITY FULL.* Then run wal2lake snapshot with public", found["remedy"])
    # The remedy, once in each of its forms; changes in between are of both replica identities.
    pg.execute(database, "".join(inserts(name, (4, 6), (4, 7)) for name in UNSENT))
    pg.execute(database, "alter table composite replica identity full; alter table computed replica identity full")
    pg.execute(database, "alter table chosen replica identity default")
    pg.execute(database, "".join(f"delete from {name} where b = 6;" for name in UNSENT))
    done = program.run("snapshot", file, *(f"public.{name}" for name in UNSENT))
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    pg.execute(database, "".join(f"update {name} set a = 70 where b = 7;" for name in UNSENT))
    done = program.stream(file)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert unequal(pg, database, config, every) == set() and program.paused(file) == {}
    # A key that the stream does not show completely is replaced by one that looks the same there.
    pg.execute(database, inserts("composite", (90, 91), (90, 92)))
    assert program.stream(file).returncode == 0
    pg.execute(database, "alter table composite replica identity default; delete from composite where b = 91")
    pg.execute(database, "alter table composite drop constraint composite_pkey, add primary key (a)")
    pg.execute(database, "update composite set b = 80 where a = 70; delete from composite where a = 9")
    done = program.stream(file)
    assert "composite is re-read" in done.stdout + done.stderr, done.stdout + done.stderr[-3000:]
    assert unequal(pg, database, config, every) == set() and program.paused(file) == {}
    pg.drop_database(database)
