"""What somebody does on the server behind the pipeline's back: the lake is equal after the next run, or it is said.

Each case has a schema of its own. After its changes every captured table equals its source, or is paused and equal
after the remedy; nothing differs in silence.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.program import Program
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

ROOT = (
    "create table a (id int, v text, primary key (id)) partition by range (id);"
    "create table low partition of a for values from (0) to (10);"
    "create table high partition of a for values from (10) to (1000);"
    "insert into a select g, 'v' from generate_series(1, 20) g"
)
ONE = "create table a (id int primary key, v text); insert into a select g, 'v' from generate_series(1, 20) g"
MORE = "update a set v = v || '!' where id < 15; insert into a values (100, 'new')"


@dataclass(frozen=True)
class Case:
    """``tables`` are those whose rows are compared, ``new`` the ones among them that ``done`` creates.

    ``leaves`` are compared instead with plug-ins that send the changes of partitions by the partitions' names.
    """

    name: str
    made: str
    done: str
    tables: tuple[str, ...] = ("a",)
    new: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()


PARTS = ("low", "high")
CASES = [
    Case("a partition is truncated by its own name", ROOT, f"truncate low; {MORE}", leaves=PARTS),
    Case("a partition is dropped", ROOT, f"drop table low; {MORE}", leaves=("high",)),
    Case(
        "a partition is dropped, and another one created in its place",
        ROOT,
        f"drop table low; create table low partition of a for values from (0) to (10); {MORE};"
        "insert into a values (3, 'again')",
        leaves=PARTS,
    ),
    Case(
        "a partition is truncated and filled in one transaction",
        ROOT,
        "begin; truncate low; insert into a values (4, 'after'); commit",
        leaves=PARTS,
    ),
    Case(
        "truncate of both partitions and the root",
        ROOT,
        "truncate high; insert into a values (50, 'x'); truncate a;insert into a values (51, 'y')",
        leaves=PARTS,
    ),
    Case(
        "a row moves to another partition",
        ROOT,
        "update a set id = 500 where id = 5; update a set id = 5 where id = 15",
        leaves=PARTS,
    ),
    Case(
        "the key is moved to another column",
        f"{ONE}; alter table a add k int unique; update a set k = id * 2",
        "alter table a alter k set not null; alter table a drop constraint a_pkey; alter table a add primary key (k);"
        "update a set id = 0 where id > 5; insert into a values (0, 'new', 777); delete from a where k = 4",
    ),
    Case(
        "the key's index is dropped while it is the replica identity",
        "create table a (id int not null, v text); create unique index a_id on a (id);"
        "alter table a replica identity using index a_id; insert into a select g, 'v' from generate_series(1, 20) g",
        "drop index a_id; insert into a values (100, 'new'); alter table a replica identity full;"
        "update a set v = 'w' where id < 5; delete from a where id = 7",
    ),
    Case(
        "a partition that is UNLOGGED",
        f"{ROOT}; create unlogged table bare partition of a for values from (1000) to (2000)",
        f"{MORE}; update a set v = 'x' where id = 11",
        leaves=PARTS,
    ),
    Case(
        "a table without columns",
        "create table a (); insert into a default values",
        "insert into a default values; insert into a default values",
    ),
    Case(
        "inherits from another table, and no longer",
        f"{ONE}; create table b (id int primary key, v text)",
        "alter table b inherit a; insert into b values (7, 'child'); update a set v = 'u' where id = 7;"
        "alter table b no inherit a; update b set v = 'own'",
        ("a", "b"),
    ),
    Case(
        "created, copied and truncated in one transaction",
        ONE,
        "begin; create table b (id int primary key, v text); truncate b; insert into b values (1, 'x'); truncate a;"
        "insert into a values (9, 'y'); commit",
        ("a", "b"),
        ("b",),
    ),
    Case(
        "replicated from elsewhere",
        ONE,
        "select pg_replication_origin_create('{schema} ' || current_database());"
        "select pg_replication_origin_session_setup('{schema} ' || current_database());"
        f"set session_replication_role = replica; {MORE}; select pg_replication_origin_session_reset()",
    ),
    Case("a column is renamed", ONE, "alter table a rename v to w; update a set w = 'x' where id < 5"),
    Case(
        "a column is renamed, and no row follows", ONE, "update a set v = 'x' where id < 5; alter table a rename v to w"
    ),
    Case(
        "types are changed",
        "create table a (id int primary key, v text, n int, m numeric(5, 1)); "
        "insert into a select g, 'v', g, g / 3.0 from generate_series(1, 20) g",
        "alter table a alter n type bigint; update a set n = 1::bigint << 40 where id < 5;"
        "alter table a alter v type int using length(v); alter table a alter m type numeric(9, 3);"
        "update a set m = 7.125",
    ),
    Case("a type is changed, and no row follows", ONE, "alter table a alter v type int using length(v)"),
    Case(
        "a column is dropped, and added by the same name",
        ONE,
        "alter table a drop v; alter table a add v text default 'again'; update a set v = 'x' where id = 3",
    ),
    Case(
        "the replica identity changes",
        ONE,
        "alter table a replica identity full; update a set v = 'f' where id < 5; delete from a where id = 6;"
        "alter table a replica identity default; update a set id = id + 200 where id < 3; delete from a where id = 7",
    ),
    Case("truncated", ONE, "truncate a; insert into a values (5, 'after')"),
    Case("truncated, and no row follows", ONE, f"{MORE}; truncate a"),
    Case(
        "renamed and back",
        ONE,
        "alter table a rename to z; insert into z values (300, 'z'); alter table z rename to a;"
        "delete from a where id = 4",
    ),
    Case(
        "two tables exchange their names",
        f"{ONE}; create table b (id int primary key, v text); insert into b values (1, 'of b')",
        "alter table a rename to c; alter table b rename to a; alter table c rename to b; update a set v = 'x';"
        "delete from b where id = 9",
        ("a", "b"),
    ),
    Case(
        "moved to another schema and back",
        ONE,
        "alter table a set schema public; insert into public.a values (300, 'away');"
        "alter table public.a set schema {schema}; update a set v = 'x' where id = 1",
    ),
    Case("vacuum full and cluster", ONE, f"vacuum full a; cluster a using a_pkey; {MORE}"),
    Case("its owner and tablespace", ONE, f"alter table a set tablespace pg_default; {MORE}"),
    Case(
        "moved to a copy by a rename in one transaction",
        ONE,
        "begin; create table n (like a including all); insert into n select * from a where id < 10;"
        "drop table a; alter table n rename to a; commit; insert into a values (100, 'new')",
    ),
    Case(
        "values whose text depends on settings",
        "create table a (id int primary key, d date, f float8, b bytea, t timestamptz, x xml);"
        "insert into a values (1, '2024-02-03', 0.1, decode('00ff', 'hex'), '2024-02-03 04:05:06+02', '<a/>')",
        "insert into a select 2, d, f, b, t, x from a; update a set f = f + 1e-15, b = b || decode('01', 'hex')",
    ),
]


def schema_of(case: Case) -> str:
    return f"b{CASES.index(case)}"


def run_sql(pg: Cluster, database: str, statements: dict[str, str]) -> None:
    """Each schema's statements, in one session that begins anew for each schema."""
    with pg.connect(database, options="-c client_min_messages=error") as session:
        session.prepare_threshold = None  # DISCARD would take prepared statements away
        for schema, sql in statements.items():
            session.execute(f"set search_path = {schema}, public".encode())
            for statement in sql.replace("{schema}", schema).split(";"):
                if statement.strip() and not statement.strip().startswith("--"):
                    session.execute(statement.encode())
            session.execute("discard all")


def wrong(file: Path, has_leaves: bool, with_new: bool = True) -> dict[str, list[TableId]]:
    """The tables of each case that differ from their source."""
    names = {schema_of(case): case.name for case in CASES}
    tables = [
        TableId(schema_of(case), table)
        for case in CASES
        for table in (case.leaves if has_leaves and case.leaves else case.tables)
        if with_new or table not in case.new
    ]
    found: dict[str, list[TableId]] = {}
    for one in difference(file, tables):
        found.setdefault(names[one.table.schema], []).append(one.table)
    return found


def connector(pg: Cluster, folder: Path, database: str, plugin: str) -> Path:
    settings = {"schema.include.list": r"b\d+", "plugin.name": plugin, **lake_settings(folder)}
    if plugin == "pgoutput":
        pg.execute(
            database,
            f'create publication "{database}" for all tables with (publish_via_partition_root = true)',
        )
        settings["publication.autocreate.mode"] = "disabled"
    return write_properties(folder / "back.properties", pg.properties(database, **settings))


@pytest.mark.parametrize(
    ("when", "plugin"),
    [("streaming", "pgoutput"), ("down", "pgoutput"), ("streaming", "decoderbufs"), ("down", "wal2json")],
)
def test_nothing_differs_in_silence(
    request: pytest.FixtureRequest, program: Program, tmp_path: Path, when: str, plugin: str
) -> None:
    pg: Cluster = request.getfixturevalue("pg" if plugin == "pgoutput" else "debian15")
    has_leaves = plugin != "pgoutput"
    database = pg.database("behind")
    for setting in (
        "datestyle = 'SQL, DMY'",
        "intervalstyle = 'iso_8601'",
        "extra_float_digits = -5",
        "bytea_output = 'escape'",
        "timezone = 'Asia/Tokyo'",
        "standard_conforming_strings = off",
        "quote_all_identifiers = on",
        "search_path = nowhere",
        "row_security = off",
        "default_transaction_isolation = 'serializable'",
        "statement_timeout = '20s'",
        "xmloption = document",
        "array_nulls = off",
        "lc_monetary = 'C'",
    ):
        pg.execute("postgres", f'alter database "{database}" set {setting}')
    file = connector(pg, tmp_path, database, plugin)
    run_sql(pg, database, {schema_of(case): f"create schema {{schema}}; {case.made}" for case in CASES})
    changes = {schema_of(case): case.done for case in CASES}
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]
    assert wrong(file, has_leaves, with_new=False) == {}
    if when == "streaming":
        with program.started("run", file, "--max-seconds", "1500") as run:
            sql = "select active from pg_replication_slots where slot_name = %s"
            wait_until(lambda: pg.execute("postgres", sql, [database]) == [(True,)], 120, "the stream")
            run_sql(pg, database, changes)
            end = pg.execute(database, "select pg_current_wal_insert_lsn()::text")[0][0]
            sql = "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots where slot_name = %s"
            wait_until(lambda: pg.execute("postgres", sql, [end, database]) == [(True,)], 90, "the changes")
            run.end(signal.SIGTERM, 120)
            print(run.said()[-6000:])
    else:
        run_sql(pg, database, changes)
        print(program.stream(file).stderr[-6000:])
    # Tables that came while the run before streamed are read.
    done = program.stream(file)
    print(done.stderr[-6000:])
    paused = program.paused(file)
    print("PAUSED", paused)
    found = wrong(file, has_leaves)
    print("WRONG", found)
    assert {name: tables for name, tables in found.items() if any(str(t) not in paused for t in tables)} == {}
    for table in paused:
        replayed = program.run("replay", file, table)
        assert replayed.returncode == 0, replayed.stdout + replayed.stderr[-3000:]
    if paused:
        done = program.stream(file)
        assert wrong(file, has_leaves) == {}
    assert done.returncode == 0
