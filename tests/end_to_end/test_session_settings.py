"""The lake holds what the server holds, whatever environment, role, database, login trigger or pooler set."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import lake_path, lake_settings, rows, write_properties
from tests.support.pooler import PROGRAM, NewerPooler, Pooler
from tests.support.program import Program

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

# One run has an environment, the next one another: texts that depend on it would not be found again.
FIRST = {
    "PGDATESTYLE": "SQL, DMY",
    "PGTZ": "Asia/Tokyo",
    "PGOPTIONS": "-c row_security=on -c bytea_output=escape -c extra_float_digits=-5",
    "PGCLIENTENCODING": "LATIN1",
    "PGHOSTADDR": "192.0.2.1",
    "PGPORT": "1",
    "PGTARGETSESSIONATTRS": "standby",
    "PGSSLROOTCERT": "system",
}
SECOND = {"PGDATESTYLE": "German", "PGTZ": "America/Caracas"}
SCHEMA = """
create schema decoys;
create view decoys.pg_class as select 1 as x;
create view decoys.pg_proc as select 1 as x;
create view decoys.pg_attribute as select 1 as x;
create view decoys.pg_settings as select 1 as x;
create table public.every_text (id int primary key, d date, ts timestamp, tz timestamptz, i interval, f float8,
    b bytea, x text, r regclass);
create table public.keyless (during tstzrange, i interval, f float8);
alter table public.keyless replica identity full;
create table public.ranged (during tstzrange primary key, v text);
create table public.hidden (id int primary key);
create table public.picked (id int primary key, v text);
create table public.log (id int generated always as identity, v text);
insert into public.picked select g, case when g <= 3 then 'kept' else 'left out' end from generate_series(1, 6) g;
"""
ROW = "'2024-02-03', '2024-02-03 04:05:06', '2024-02-03 04:05:06+00', '1 day 02:03:04', 1 / 3.0, '\\x00ff', 'é€日'"
MOMENT = datetime(2024, 2, 3, 4, 5, 6)
VALUES = {
    "d": date(2024, 2, 3),
    "ts": MOMENT,
    "tz": MOMENT.replace(tzinfo=UTC),
    "f": 1 / 3,
    "b": b"\x00\xff",
    "x": "é€日",
}
STRANGE = (
    *("datestyle = 'German'", "intervalstyle = 'iso_8601'", "extra_float_digits = -5", "bytea_output = 'escape'"),
    *("timezone = 'Asia/Kathmandu'", "row_security = on", "default_transaction_read_only = on", "lock_timeout = 1"),
    *("default_transaction_isolation = 'serializable'", "search_path = decoys, pg_catalog, public"),
    *("quote_all_identifiers = on", "client_encoding = 'LATIN1'", "array_nulls = off"),
)


def connector(pg: Cluster, folder: Path, database: str, **more: Any) -> tuple[str, Path]:
    """Make the tables, a role that reads them, and a connector file."""
    role = f"reader_{database}"
    pg.execute(database, SCHEMA)
    pg.execute(
        database,
        f"create role {role} login replication password 'pw'; grant select on all tables in schema public to {role};"
        f"grant usage on schema decoys to {role}; grant select on all tables in schema decoys to {role};"
        f'create publication "{database}" for tables in schema public',
    )
    settings = {
        "database.user": role,
        "database.password": "pw",
        "table.include.list": "public.every_text,public.keyless,public.ranged,public.picked",
        "publication.autocreate.mode": "disabled",
        # A name without a schema means what it means to the role.
        "snapshot.select.statement.overrides": "public.picked",
        "snapshot.select.statement.overrides.public.picked": "select * from picked where v = 'kept'",
        **lake_settings(folder),
        **more,
    }
    return role, write_properties(folder / "settings.properties", pg.properties(database, **settings))


def write(pg: Cluster, database: str) -> None:
    """Some rows of each table."""
    pg.execute(
        database,
        f"insert into public.every_text select n + g, {ROW}, 'public.log' from generate_series(1, 3) g,"
        " (select count(*) as n from public.every_text) as before;"
        "insert into public.keyless values ('[2024-01-01 00:00+00, 2024-01-02 00:00+00)', '1 mon', 0.1),"
        " ('[2024-01-01 12:00+00, 2024-01-02 12:00+00)', '2 days', 0.30000000000000004)",
    )


def check(file: Path, texts: int, keyless: list[float], ranged: list[str]) -> None:
    """The lake's rows are those values, in columns of their own."""
    config = load(file)
    found = rows(lake_path(config, TableId("public", "every_text")))
    assert len(found) == texts
    for row in found:
        assert {name: row[name] for name in VALUES} == VALUES
        assert row["__rescued"] is None and row["i"] == found[0]["i"] and row["r"] == found[0]["r"]
    found = rows(lake_path(config, TableId("public", "keyless")))
    assert sorted(row["f"] for row in found) == sorted(keyless)
    found = rows(lake_path(config, TableId("public", "ranged")))
    assert sorted(row["v"] for row in found) == sorted(ranged)
    found = rows(lake_path(config, TableId("public", "picked")))
    assert {row["v"] for row in found} == {"kept"} and len(found) == 3


def test_one_lake_under_any_environment_role_database_and_login_trigger(
    embedded18: Cluster, program: Program, tmp_path: Path
) -> None:
    pg, database = embedded18, embedded18.database("settings")
    role, file = connector(pg, tmp_path, database)
    write(pg, database)
    pg.execute(
        database,
        "insert into public.ranged values ('[2024-01-01 00:00+00, 2024-01-02 00:00+00)', 'a'),"
        " ('[2025-01-01 00:00+00, 2025-01-02 00:00+00)', 'b'); insert into public.hidden select generate_series(1, 20);"
        "alter table public.hidden enable row level security; create policy few on public.hidden using (id <= 5)",
    )
    done = program.stream(file, **FIRST)
    assert done.returncode == 0, done.stderr[-3000:]
    check(file, 3, [0.1, 0.1 + 0.2], ["a", "b"])
    # The next run has another environment, and everyone else sets something too.
    for setting in STRANGE:
        pg.execute("postgres", f"alter role {role} set {setting}")
        if "read_only" not in setting and "encoding" not in setting:  # the test writes
            pg.execute("postgres", f'alter database "{database}" set {setting}')
    calls = "".join(
        f"perform pg_catalog.set_config('{name}', '{value}', false);"
        for name, value in {
            "row_security": "on",
            "extra_float_digits": "0",
            "IntervalStyle": "sql_standard",
            "DateStyle": "Postgres, DMY",
            "TimeZone": "Asia/Tokyo",
            "search_path": "decoys",
        }.items()
    )
    pg.execute(
        database,
        "create function public.at_login() returns event_trigger language plpgsql as $$ begin "
        f"if session_user = '{role}' then {calls} end if; end $$;"
        "create event trigger at_login on login execute function public.at_login();"
        "alter event trigger at_login enable always",
    )
    write(pg, database)
    pg.execute(
        database,
        "delete from public.keyless where i = '1 mon' and f = 0.1; update public.keyless set f = 0.7 where f > 0.2;"
        "update public.ranged set v = 'changed' where v = 'a'; delete from public.ranged where v = 'b';"
        "update public.every_text set id = id + 100 where id <= 2",
    )
    done = program.stream(file, **SECOND)
    assert done.returncode == 0, done.stderr[-3000:]
    check(file, 6, [0.7, 0.7], ["changed"])
    # A table of which a policy hides rows is refused, not read without them.
    closed = write_properties(
        tmp_path / "closed.properties",
        pg.properties(
            database,
            **{
                "database.user": role,
                "database.password": "pw",
                "table.include.list": "public.hidden",
                "publication.autocreate.mode": "disabled",
                "slot.name": f"{database}_closed",
                **lake_settings(tmp_path / "closed"),
            },
        ),
    )
    done = program.stream(closed, **SECOND)
    pg.drop_slots([database])
    assert done.returncode != 0 and "Row-level security would hide rows" in done.stdout + done.stderr


@pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed (tools/install_servers.sh)")
def test_a_pooler_that_leaves_out_settings_changes_nothing(pg: Cluster, program: Program, tmp_path: Path) -> None:
    database = pg.database("pooled")
    role = f"reader_{database}"
    with Pooler(pg, {role: "pw"}) as pooler, NewerPooler(pg, pooler) as newer:
        _, file = connector(pg, tmp_path, database, **{"database.port": newer.port})
        for setting in STRANGE:
            pg.execute("postgres", f"alter role {role} set {setting}")
        write(pg, database)
        pg.execute(
            database,
            "insert into public.ranged values ('[2024-01-01 00:00+00, 2024-01-02 00:00+00)', 'a');"
            "alter table public.keyless enable row level security; create policy none on public.keyless using (false)",
        )
        done = program.stream(file)
        assert done.returncode != 0 and "Row-level security would hide rows" in done.stdout + done.stderr
        pg.execute("postgres", f"alter role {role} bypassrls")
        done = program.stream(file, **FIRST)
        assert done.returncode == 0, done.stderr[-3000:]
        write(pg, database)
        done = program.stream(file, **SECOND)
        assert done.returncode == 0, done.stderr[-3000:]
        check(file, 6, [0.1, 0.1, 0.1 + 0.2, 0.1 + 0.2], ["a"])
        checked = program.run("check", file)
        assert checked.returncode == 0, checked.stdout
    with Pooler(pg, {role: "pw"}, pool_mode="transaction") as pooler, NewerPooler(pg, pooler) as newer:
        file.write_text(file.read_text() + f"\ndatabase.port={newer.port}\n")
        said = [program.stream(file), program.run("check", file)]
    for done in said:
        assert done.returncode != 0
        assert "gives one session of the server to several connections" in done.stdout + done.stderr, done.stderr
