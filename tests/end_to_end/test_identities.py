"""A name is not an identity: tables and enum labels that get other names and their own again.

Whatever was changed under another name, the lake table of a name equals the table that has the name now. Each case has
a schema of its own; in all of them the same connector captures a, b and old, but not tmp.
"""

from __future__ import annotations

import json
import signal
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import lake_path, lake_settings, rows, write_properties
from tests.support.program import Program
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

PAIR = (
    "create table a (id int primary key, v text); insert into a select g, 'a' from generate_series(1, 9) g;"
    "create table b (id int primary key, v text); insert into b select g, 'b' from generate_series(5, 12) g"
)
ONE = "create table a (id int primary key, v text); insert into a select g, 'a' from generate_series(1, 9) g"
CHANGE = "update {0} set v = 'changed' where id < 6; delete from {0} where id = 7; insert into {0} values (77, 'new')"
TABLES = (
    "select oid::regclass::text from pg_class where relkind in ('r', 'p') "
    "and relnamespace::regnamespace::text ~ '^n[0-9]'"
)
WAITS = (
    "select count(*) from pg_stat_activity where datname = %s and application_name = 'wal2lake' "
    "and wait_event_type = 'Lock'"
)
MOOD = "create type mood as enum ('sad', 'ok', 'glad'); create domain feeling as mood check (value <> 'glad');"


@dataclass(frozen=True)
class Case:
    """``there`` and ``back`` are statements in the case's schema; both together leave other rows under the names.

    ``when``: where it is tried, empty for everywhere.
    """

    name: str
    made: str
    there: str
    back: str
    when: tuple[str, ...] = ()


CASES = [
    Case(
        "to a captured name",
        ONE,
        f"alter table a rename to b; {CHANGE.format('b')}",
        "alter table b rename to a",
    ),
    Case(
        "to a captured name, and changed again",
        ONE,
        f"alter table a rename to b; {CHANGE.format('b')}",
        "alter table b rename to a; update a set v = 'again' where id = 8",
    ),
    Case("to another name", ONE, f"alter table a rename to tmp; {CHANGE.format('tmp')}", "alter table tmp rename to a"),
    Case(
        "swapped, one of them changed",
        PAIR,
        f"alter table a rename to tmp; alter table b rename to a; alter table tmp rename to b; {CHANGE.format('b')}",
        "alter table a rename to tmp; alter table b rename to a; alter table tmp rename to b",
    ),
    Case(
        "swapped, both changed",
        PAIR,
        f"alter table a rename to tmp; alter table b rename to a; alter table tmp rename to b; {CHANGE.format('b')};"
        "delete from a where id > 10",
        "alter table a rename to tmp; alter table b rename to a; alter table tmp rename to b; delete from b",
        # With a read in between the two tables of the case before are what these would be.
        ("streaming", "down"),
    ),
    Case(
        "in place of a dropped table",
        PAIR,
        f"drop table b; alter table a rename to b; {CHANGE.format('b')}",
        "alter table b rename to a",
    ),
    Case(
        "another table meanwhile",
        ONE,
        "alter table a rename to tmp; create table a (like tmp including all); insert into a values (500, 'other')",
        "insert into tmp values (600, 'away'); drop table a; alter table tmp rename to a",
    ),
    Case(
        "another table meanwhile, which then dropped itself",
        PAIR,
        "alter table b rename to tmp; alter table a rename to b; insert into b values (500, 'of a')",
        "drop table b; alter table tmp rename to b",
    ),
    Case(
        "a tool's new copy, and the old table again",
        ONE,
        "create table b (like a including all); insert into b select * from a; alter table a rename to old;"
        f"alter table b rename to a; {CHANGE.format('a')}; update old set v = 'old' where id = 2",
        "alter table a rename to b; alter table old rename to a",
    ),
    Case(
        "to another schema",
        f"{ONE}; create schema {{schema}}x",
        f"alter table a set schema {{schema}}x; {CHANGE.format('{schema}x.a')}",
        "alter table {schema}x.a set schema {schema}",
    ),
    Case(
        "the schema renamed",
        ONE,
        f"alter schema {{schema}} rename to {{schema}}y; {CHANGE.format('{schema}y.a')}",
        "alter schema {schema}y rename to {schema}",
    ),
    Case(
        "a partition",
        "create table root (id int primary key, v text) partition by range (id);"
        "create table a partition of root for values from (0) to (100); insert into root select g from "
        "generate_series(1, 9) g",
        f"alter table a rename to b; {CHANGE.format('root')}",
        "alter table b rename to a",
    ),
    Case(
        "labels of an enum",
        f"{MOOD} create table a (id int primary key, v mood, w mood[], f feeling); insert into a values "
        "(1, 'sad', '{sad,ok}', 'sad')",
        "alter type mood rename value 'sad' to 'down'; insert into a values (2, 'down', '{down}', 'down')",
        "alter type mood rename value 'down' to 'sad'; insert into a values (3, 'sad', '{ok}', 'ok')",
    ),
    Case(
        "labels of an enum in an array, exchanged",
        f"{MOOD} create table a (id int primary key, w mood[]); insert into a values (1, '{{sad,ok}}')",
        "alter type mood rename value 'sad' to 'x'; alter type mood rename value 'ok' to 'sad';"
        "alter type mood rename value 'x' to 'ok'; insert into a values (2, '{ok,glad}')",
        "alter type mood rename value 'sad' to 'x'; alter type mood rename value 'ok' to 'sad';"
        "alter type mood rename value 'x' to 'ok'; alter type mood add value 'new'; insert into a values (3, '{sad}')",
    ),
    Case(
        "a label of an enum in a composite",
        f"{MOOD} create type pair as (m mood, n int); create table a (id int primary key, p pair);"
        "insert into a values (1, row('sad', 1))",
        "alter type mood rename value 'sad' to 'x'; insert into a values (2, row('x', 2))",
        "alter type mood rename value 'x' to 'sad'",
    ),
]


def schema_of(case: Case) -> str:
    return f"n{CASES.index(case)}"


def run_sql(pg: Cluster, database: str, statements: dict[str, str], session: Any = None) -> None:
    """Each schema's statements, in a session of their own or in the transaction of ``session``."""
    with nullcontext(session) if session is not None else pg.connect(database) as own:
        for schema, sql in statements.items():
            own.execute(f"set search_path = {schema}, public".encode())
            for statement in sql.replace("{schema}", schema).split(";"):
                own.execute(statement.encode())


@pytest.mark.parametrize("when", ["streaming", "down", "in two runs", "first read", "read again"])
def test_a_lake_table_equals_the_table_that_has_its_name(
    pg: Cluster, program: Program, tmp_path: Path, when: str
) -> None:
    database = pg.database("identities")
    file = write_properties(
        tmp_path / "identities.properties",
        pg.properties(
            database,
            **{
                "table.include.list": r"n\d+[xy]?\.(a|b|old)",
                "publication.autocreate.mode": "all_tables",
                **lake_settings(tmp_path),
            },
        ),
    )
    cases = [case for case in CASES if when in (case.when or (when,))]
    there, back = ({schema_of(case): getattr(case, way) for case in cases} for way in ("there", "back"))
    run_sql(pg, database, {schema_of(case): f"create schema {{schema}}; {case.made}" for case in cases})
    if when != "first read":
        settle(program, file)
    if when == "down":  # for all of them
        judge(pg, database, file)

    if when in ("first read", "read again"):
        # The snapshot is taken, and no row is read before the names are others.
        with pg.connect(database) as session:
            session.execute("begin")
            for (table,) in pg.execute(database, TABLES):
                session.execute(f"lock table {table} in access exclusive mode".encode())
            with program.started(
                *(("run", file, "--until-idle", "0.2") if when == "first read" else ("snapshot", file))
            ) as run:
                wait_until(lambda: pg.execute("postgres", WAITS, [database]) != [(0,)], 60, "the wait for a lock")
                run_sql(pg, database, there, session)
                session.execute("commit")
                code = run.end(seconds=120)
                assert code in (0, 1) and "Traceback" not in run.said(), run.said()[-3000:]
        settle(program, file)
        judge(pg, database, file)
        run_sql(pg, database, back)
    elif when == "streaming":
        with program.started("run", file) as running:
            wait_until(lambda: is_streaming(pg, database), 120, "the stream")
            for case in cases:
                run_sql(pg, database, {schema_of(case): f"{case.there};{case.back}"})
            end = pg.execute(database, "select pg_current_wal_insert_lsn()::text")[0][0]
            wait_until(lambda: is_confirmed(pg, database, end), 90, "the changes in the changelogs")
            assert running.end(signal.SIGTERM, 120) == 0, running.said()[-3000:]
    else:
        run_sql(pg, database, there)
        if when == "in two runs":
            settle(program, file)
            judge(pg, database, file)
        run_sql(pg, database, back)
    settle(program, file)
    judge(pg, database, file)
    assert program.paused(file) == {}
    pg.drop_database(database)


def settle(program: Program, file: Path) -> None:
    for _ in range(4):
        done = program.stream(file)
        assert done.returncode == 0, done.stderr[-3000:]
        if "(time)" not in done.stdout + done.stderr:
            return
    raise AssertionError("the runs did not come to rest")


def judge(pg: Cluster, database: str, file: Path) -> None:
    found = pg.execute(
        database,
        "select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where c.relkind = 'r' and n.nspname ~ '^n[0-9]+' and c.relname in ('a', 'b', 'old')",
    )
    config, wrong = load(file), {}
    for schema, name in found:
        source = [row for (row,) in pg.execute(database, f'select to_jsonb(t) from "{schema}"."{name}" t')]
        lake = [
            {key: value for key, value in row.items() if not key.startswith("__")}
            for row in rows(lake_path(config, TableId(schema, name)))
        ]
        if texts(source) != texts(lake):
            wrong[f"{schema}.{name}"] = (CASES[int(schema.rstrip("xy")[1:])].name, texts(source), texts(lake))
    assert not wrong, "\n".join(str(each) for each in wrong.items())


def texts(found: list[dict[str, object]]) -> list[str]:
    return sorted(json.dumps({key: plain(value) for key, value in row.items()}, sort_keys=True) for row in found)


def plain(value: object) -> object:
    """The lake holds a composite as PostgreSQL's text."""
    return f"({','.join(map(str, value.values()))})" if isinstance(value, dict) else value


def is_streaming(pg: Cluster, slot: str) -> bool:
    sql = "select active from pg_replication_slots where slot_name = %s"
    return pg.execute("postgres", sql, [slot]) == [(True,)]


def is_confirmed(pg: Cluster, slot: str, lsn: str) -> bool:
    sql = "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots where slot_name = %s"
    return pg.execute("postgres", sql, [lsn, slot]) == [(True,)]
