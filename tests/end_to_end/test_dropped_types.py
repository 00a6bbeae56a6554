"""A type or an extension that a captured column uses is dropped with its columns: the table and the others go on."""

import signal

import pytest

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_path, lake_settings, query, write_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

USING, OTHER = TableId("public", "using_types"), TableId("public", "other")
SCHEMA = """
create extension hstore;
create extension citext;
create type mood as enum ('sad', 'glad');
create domain code as text check (value <> '');
create type pair as (a int, b text);
create table using_types (id int primary key, h hstore, c citext, m mood, ms mood[], d code, p pair, v text);
create table other (id int primary key, v text);
insert into using_types select g, 'a=>1', 'C', 'sad', '{sad,glad}', 'x', '(1,b)', 'v' from generate_series(1, 20) g;
insert into other select g, 'v' from generate_series(1, 20) g;
"""
ROW = "insert into using_types (id, v) values ({id}, 'after'); update using_types set v = 'u{id}' where id = 3;"
WITH = "insert into using_types (id, {column}, v) values ({id}, {value}, 'before');"


def differs(pg, database, file):
    """Tables whose lake has other columns or rows than the source; composite types, maps and lists by their columns."""
    found = [one.table for one in difference(file, [OTHER])]
    named = (
        "select attname from pg_attribute where attrelid = 'using_types'::regclass and attnum > 0 and not attisdropped"
    )
    names = {name for (name,) in pg.execute(database, named)}
    table = lake_path(load(file), USING)
    in_lake = {name for name in query(table, "select * from t limit 1").column_names if not name.startswith("__")}
    texts = ", ".join(sorted((names & in_lake) - {"h", "ms", "p"}))
    rows = query(table, f"select {texts} from t").to_pylist()
    mine = {tuple(row[name] for name in row) for row in rows}
    theirs = set(pg.execute(database, f"select {texts} from using_types"))
    # A dropped column is kept in the lake.
    if not names <= in_lake or mine != theirs:
        found.append(USING.table)
    return found


def test_types_dropped_with_their_columns(debian15, program, tmp_path):
    pg = debian15
    database = pg.database("types")
    pg.execute(database, SCHEMA)
    settings = {"schema.include.list": "public", **lake_settings(tmp_path)}
    file = write_properties(tmp_path / "c.properties", pg.properties(database, **settings))
    assert program.stream(file).returncode == 0
    assert differs(pg, database, file) == []
    # Changes with the type wait in the slot when it no longer exists.
    for number, (column, value, drop) in enumerate(
        (
            ("m", "'glad'", "drop type mood cascade"),
            ("c", "'CI'", "drop extension citext cascade"),
        ),
        1,
    ):
        pg.execute(database, WITH.format(column=column, value=value, id=100 * number))
        pg.execute(
            database, f"{drop}; {ROW.format(id=100 * number + 1)} insert into other values ({100 * number}, 'v')"
        )
        done = program.stream(file)
        assert done.returncode == 0, done.stderr[-3000:]
        assert program.paused(file) == {}
        assert differs(pg, database, file) == [], drop
    with program.started("run", file, "--max-seconds", "1500") as run:
        for number, (column, value, drop) in enumerate(
            (
                ("h", "'b=>2'", "drop extension hstore cascade"),
                ("d", "'y'", "drop domain code cascade"),
                ("p", "'(2,c)'", "drop type pair cascade"),
            ),
            4,
        ):
            pg.execute(
                database,
                f"begin; {WITH.format(column=column, value=value, id=100 * number)} {drop};"
                f"{ROW.format(id=100 * number + 1)} insert into other values ({100 * number}, 'v'); commit",
            )
            wait_until(lambda: not differs(pg, database, file), 60, drop)
        assert run.end(signal.SIGINT) == 0, run.said()[-3000:]
    assert program.paused(file) == {}
    # The same names again, as other types.
    pg.execute(
        database,
        "create type mood as enum ('glad', 'angry'); alter table using_types add m mood default 'angry';"
        "create extension hstore; alter table using_types add h hstore; update using_types set h = 'z=>9' where id < 9",
    )
    assert program.stream(file).returncode == 0
    assert differs(pg, database, file) == []
