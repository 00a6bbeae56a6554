"""Objects that values name are renamed: no row of the lake is wrong in silence, and columns of such types are texts."""

from __future__ import annotations

import json
import re

import pytest

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.lake import lake_path, lake_settings, rows, write_properties

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

SCHEMA = """
create table seen (n int);
create table other (n int);
create role {role};
create table bare (n int, r regclass);
create table rights (n int, a aclitem);
create table keyed (r regclass primary key, v text);
create table roles (r regrole primary key, v text);
create table valued (id int primary key, r regclass, rs regrole[], v text);
create table whole (id int not null unique, r regclass, v text);
create table excluded (n int, r regclass);
create table log (r regclass, v text);
alter table bare replica identity full; alter table rights replica identity full;
alter table whole replica identity full; alter table excluded replica identity full;
alter table log replica identity full;
insert into bare values (1, 'seen'), (2, 'other');
insert into rights values (1, '{role}=r/{role}'), (2, 'postgres=r/postgres');
insert into keyed values ('seen', 'a'), ('other', 'b');
insert into roles values ('{role}', 'a'), ('postgres', 'b');
insert into valued values (1, 'seen', '{{{role},postgres}}', 'a'), (2, 'other', null, 'b'), (3, 'seen', null, 'c');
insert into whole values (1, 'seen', 'a'), (2, 'other', 'b'), (3, 'seen', 'c');
insert into excluded values (1, 'seen'), (2, 'other');
insert into log values ('seen', 'a');
"""
CHANGES = """
alter table seen rename to hidden;
alter role {role} rename to {role}_late;
delete from bare where n = 1;
delete from rights where n = 1;
update keyed set v = 'x' where v = 'a';
update roles set v = 'x' where v = 'a';
update valued set v = 'x' where id = 1; delete from valued where id = 2;
update whole set v = 'x' where id = 1; delete from whole where id = 2;
update excluded set n = 5 where n = 1; delete from excluded where n = 2;
insert into log values ('hidden', 'b');
"""
NAMES = ("bare", "rights", "keyed", "roles", "valued", "whole", "excluded", "log")
PAUSED = {"public.bare": "r", "public.rights": "a", "public.keyed": "r", "public.roles": "r"}


def test_renamed_objects(pg, program, tmp_path):
    database = pg.database("names")
    role = f"{database}_role"
    pg.execute(database, SCHEMA.format(role=role))
    settings = {
        "table.include.list": ",".join(f"public.{name}" for name in NAMES),
        "column.exclude.list": "public.excluded.r",
        "publication.autocreate.mode": "filtered",
        **lake_settings(tmp_path),
    }
    file = write_properties(tmp_path / "c.properties", pg.properties(database, **settings))
    config = load(file)

    def lake(name, columns):
        found = rows(lake_path(config, TableId("public", name)), f"select {columns} from t")
        # Whether a name has its schema depends on search_path.
        return sorted(tuple(re.sub(r"^public\.", "", str(each)) for each in row.values()) for row in found)

    checked = program.run("check", file)
    for table, column in PAUSED.items():
        assert f"Rows of {table} are identified by {column}, of which the server sends names" in checked.stdout
    assert "Rows of public.valued" not in checked.stdout and "Rows of public.excluded" not in checked.stdout
    assert program.stream(file).returncode == 0
    assert lake("keyed", "r, v") == [("other", "b"), ("seen", "a")]
    pg.execute(database, CHANGES.format(role=role))
    done = program.stream(file)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr[-3000:]
    paused = program.paused(file)
    assert paused.keys() == PAUSED.keys()
    for table, column in PAUSED.items():
        assert f"rows are identified by {column}, of which the server sends the names" in paused[table]["reason"]
        assert "USING INDEX" in paused[table]["remedy"]
    # What identifies rows by other columns goes on; a row's text is that of when it was written.
    assert lake("valued", "id, r, v") == [("1", "hidden", "x"), ("3", "seen", "c")]
    assert lake("whole", "id, r, v") == [("1", "hidden", "x"), ("3", "seen", "c")]
    assert lake("excluded", "n") == [("5",)]
    assert lake("log", "r, v") == [("hidden", "b"), ("seen", "a")]
    compared = program.run("reconcile", file, "--json", "public.valued", "public.whole")
    tables = json.loads(compared.stdout)["tables"]
    assert {name: (each["state"], each["columns_left_out"]) for name, each in tables.items()} == {
        "public.valued": ("equal", ["r", "rs"]),
        "public.whole": ("equal", ["r"]),
    }
    # A key of other types makes it a table like others.
    pg.execute(database, "alter table keyed drop constraint keyed_pkey, add column id int generated always as identity")
    pg.execute(database, "alter table keyed add primary key (id)")
    done = program.run("snapshot", file, "public.keyed")
    assert done.returncode == 0, done.stderr[-3000:]
    pg.execute(database, "alter table other rename to another; update keyed set v = 'y' where v = 'b'")
    program.stream(file)
    assert program.paused(file).keys() == PAUSED.keys() - {"public.keyed"}
    assert lake("keyed", "v, r") == [("x", "hidden"), ("y", "another")]
    pg.drop_database(database)
    pg.execute("postgres", f"drop role {role}_late")
