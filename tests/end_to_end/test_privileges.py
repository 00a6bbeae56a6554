"""Privileges that are revoked: a read says which table, the others go on, a GRANT is the remedy."""

import pytest

from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

OPEN, SHUT = TableId("public", "open"), TableId("public", "shut")
SCHEMA = """
create table open (id int primary key, v text);
create table shut (id int primary key, v text, w text);
insert into open select g, 'v' from generate_series(1, 20) g;
insert into shut select g, 'v', 'w' from generate_series(1, 20) g;
"""


def with_role(pg, database, folder):
    """A connector of a role that owns nothing, and its name."""
    pg.execute(database, SCHEMA)
    role = f"reader_{database}"
    pg.execute(
        database,
        f"create role {role} login replication password 'pw'; grant select on all tables in schema public to {role};"
        f'create publication "{database}" for table open, shut',
    )
    settings = {
        "database.user": role,
        "database.password": "pw",
        "schema.include.list": "public",
        "publication.autocreate.mode": "disabled",
        **lake_settings(folder),
    }
    return role, write_properties(folder / "reader.properties", pg.properties(database, **settings))


def differs(pg, database, folder, *tables):
    """As a superuser sees it."""
    file = write_properties(folder / "owner.properties", pg.properties(database, **lake_settings(folder)))
    return difference(file, list(tables))


def test_select_revoked_before_the_first_snapshot_and_from_one_column(pg, program, tmp_path):
    database = pg.database("shut_first")
    role, file = with_role(pg, database, tmp_path)
    for revoke, grant in (
        (f"revoke select on shut from {role}", f"grant select on shut to {role}"),
        (
            f"revoke select on shut from {role}; grant select (id, v) on shut to {role}",
            f"grant select (w) on shut to {role}",
        ),
    ):
        pg.execute(database, revoke)
        done = program.stream(file)
        said = done.stdout + done.stderr
        assert done.returncode != 0 and "Traceback" not in said, said[-3000:]
        assert "public.shut" in said or "table shut" in said, said[-3000:]
        assert "Grant" in said or "GRANT" in said, said[-3000:]
        checked = program.run("check", file)
        assert checked.returncode != 0 and "public.shut" in checked.stdout, checked.stdout
        pg.execute(database, grant)
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]
    assert differs(pg, database, tmp_path, OPEN, SHUT) == []


def test_privileges_revoked_while_streaming(pg, program, tmp_path):
    database = pg.database("shut_later")
    role, file = with_role(pg, database, tmp_path)
    assert program.stream(file).returncode == 0
    with program.started("run", file, "--max-seconds", "1500") as run:
        # The stream needs no privilege of a table: its changes go on.
        pg.execute(database, f"revoke select on shut from {role}; update shut set v = 'shut'; update open set v = 'o'")
        wait_until(lambda: not differs(pg, database, tmp_path, OPEN, SHUT), 60, "changes of both tables")
        # A change after which the table is to be read again, which it may not be.
        pg.execute(
            database,
            "alter table shut alter w type varchar(40) using w || '!'; insert into shut values (100, 'v', 'w');"
            "insert into open values (100, 'streamed')",
        )
        run.wait_for("public.shut is paused")
        wait_until(lambda: not differs(pg, database, tmp_path, OPEN), 60, "the other table")
        assert run.end(2) == 1, run.said()[-3000:]
    paused = program.paused(file)
    assert list(paused) == ["public.shut"]
    assert "wal2lake replay with public.shut" in paused["public.shut"]["remedy"], paused
    pg.execute(database, f"grant select on shut to {role}")
    replayed = program.run("replay", file, "public.shut")
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr[-3000:]
    assert program.stream(file).returncode == 0
    assert differs(pg, database, tmp_path, OPEN, SHUT) == []
    # While no run is active: the role may no longer replicate, or connect.
    pg.execute(database, "insert into shut values (200, 'v', 'w'); insert into open values (200, 'v')")
    for revoke, grant, word in (
        (f"alter role {role} noreplication", f"alter role {role} replication", "replication"),
        (f"alter role {role} nologin", f"alter role {role} login", "LOGIN"),
        (f"revoke usage on schema public from public, {role}", "grant usage on schema public to public", "schema"),
    ):
        pg.execute(database, revoke)
        done = program.stream(file)
        said = done.stdout + done.stderr
        pg.execute(database, grant)
        if done.returncode == 0:
            assert differs(pg, database, tmp_path, OPEN, SHUT) == [], revoke
        else:
            assert word in said and "Traceback" not in said, (revoke, said[-3000:])
    assert program.stream(file).returncode == 0
    assert differs(pg, database, tmp_path, OPEN, SHUT) == []
