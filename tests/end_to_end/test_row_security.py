"""Row-level security never makes rows disappear: a read shows all rows of a table, or fails and says which table."""

import time

import pytest

from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

OPEN, CLOSED, PARTED = TableId("public", "open"), TableId("public", "closed"), TableId("public", "parted")
SCHEMA = """
create table open (id int primary key, v text);
create table closed (id int primary key, v text);
create table parted (id int, v text, primary key (id)) partition by range (id);
create table parted_low partition of parted for values from (0) to (10);
create table parted_high partition of parted for values from (10) to (1000);
insert into open select g, 'v' from generate_series(1, 20) g;
insert into closed select g, 'v' from generate_series(1, 20) g;
insert into parted select g, 'v' from generate_series(1, 20) g;
create policy few on closed using (id <= 5);
"""


def with_role(pg, database, folder, **more):
    """A connector of a role of its own, which may read everything but owns nothing."""
    role = f"reader_{database}"
    pg.execute(
        database,
        f"create role {role} login replication password 'pw'; grant select on all tables in schema public to {role};"
        f'create publication "{database}" for table open, closed, parted with (publish_via_partition_root = true)',
    )
    settings = {
        "database.user": role,
        "database.password": "pw",
        "table.include.list": "public.open,public.closed,public.parted",
        "publication.autocreate.mode": "disabled",
        **lake_settings(folder),
        **more,
    }
    return role, write_properties(folder / "reader.properties", pg.properties(database, **settings))


def own_difference(pg, database, folder, tables):
    """As a superuser sees it, whom no policy concerns."""
    file = write_properties(folder / "owner.properties", pg.properties(database, **lake_settings(folder)))
    return difference(file, tables)


def test_a_snapshot_fails_where_a_policy_would_hide_rows(pg, program, tmp_path):
    database = pg.database("hidden")
    pg.execute(database, SCHEMA)
    # Even where the connector file asks the server for it, rows are not left out in silence.
    role, file = with_role(pg, database, tmp_path, **{"database.initial.statements": "SET row_security = on"})
    pg.execute(
        database,
        "alter table closed enable row level security; alter table parted_low enable row level security;"
        "create policy none on parted_low using (false)",
    )
    checked = program.run("check", file)
    assert checked.returncode != 0 and "row security" in checked.stdout and "public.closed" in checked.stdout
    assert "public.parted" not in checked.stdout.split("row security")[1].splitlines()[0]
    done = program.stream(file)
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Row-level security would hide rows" in said and "public.closed" in said and "BYPASSRLS" in said
    # The remedy. The policy of a leaf that is read by its root's name concerns nobody.
    pg.execute(database, f"alter role {role} bypassrls")
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]
    assert own_difference(pg, database, tmp_path, [OPEN, CLOSED, PARTED]) == []


def test_a_reread_that_a_policy_would_cut_pauses_its_table_alone(pg, program, tmp_path):
    database = pg.database("hidden_again")
    pg.execute(database, SCHEMA)
    role, file = with_role(pg, database, tmp_path)
    assert program.stream(file).returncode == 0
    assert own_difference(pg, database, tmp_path, [OPEN, CLOSED, PARTED]) == []
    with program.started("run", file, "--max-seconds", "1500") as run:
        # A policy alone changes nothing for the stream; then the table is to be read again, and cannot be.
        pg.execute(
            database,
            f"alter table closed owner to {role}; alter table closed enable row level security;"
            "alter table closed force row level security; insert into closed values (100, 'streamed');"
            "alter table closed alter v type varchar(40) using v || '!'; insert into open values (100, 'streamed')",
        )
        run.wait_for("public.closed is paused")
        wait_until(lambda: not own_difference(pg, database, tmp_path, [OPEN, PARTED]), 60, "the other tables")
        time.sleep(1)
        assert run.process.poll() is None
        run.end(2)
    paused = program.paused(file)
    assert list(paused) == ["public.closed"]
    assert "Row-level security" in paused["public.closed"]["reason"]
    assert "wal2lake replay with public.closed" in paused["public.closed"]["remedy"]
    # Counting rows says nothing of that table, and fails for none.
    counted = program.run("status", file, "--rows", "--json")
    assert counted.returncode == 0, counted.stderr
    pg.execute(database, "alter table closed no force row level security")
    replayed = program.run("replay", file, "public.closed")
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr[-3000:]
    assert program.stream(file).returncode == 0
    assert own_difference(pg, database, tmp_path, [OPEN, CLOSED, PARTED]) == []
