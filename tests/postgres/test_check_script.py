"""What ``wal2lake check`` prints: the statements are run by psql as they are, and the next check passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.lake import write_properties
from tests.support.program import Program, program

pytestmark = pytest.mark.postgres

__all__ = ["program"]

# Names with blanks, capitals, quotes and dots; seven tables, more than one line of a message names.
SCHEMA = """
create schema "Our ""Shop"" 1";
create table "Our ""Shop"" 1"."Order lines" (id int primary key);
create table "Our ""Shop"" 1"."key.less" (v text);
create table a (id int primary key);
create table b (id int primary key); create table c (id int primary key);
create table d (id int primary key); create table e (id int primary key);
create table left_out (id int primary key);
"""
LISTS = {"schema.include.list": 'public,Our "Shop" 1', "table.exclude.list": "public.left_out"}


def connector(pg: Cluster, folder: Path, database: str, role: str, **more: Any) -> Path:
    settings = {
        "database.user": role,
        "database.password": "pw",
        "slot.name": f"s_{abs(hash(database))}",
        "publication.name": f"Changes of {database}",
        "wal2lake.lake.path": folder / "lake",
        "wal2lake.state.path": folder / "state",
        **LISTS,
        **more,
    }
    return write_properties(folder / "shop.properties", pg.properties(database, **settings))


def printed_statements(said: str) -> str:
    """What a user would copy from the output of ``check``."""
    return "\n".join(line[7:] for line in said.splitlines() if line.startswith(" " * 7) and line.endswith(";"))


def passes(program: Program, file: Path) -> bool:
    done = program.run("check", file)
    return done.returncode == 0 and not [line for line in done.stdout.splitlines() if line[:5] in ("FAIL ", "warn ")]


@pytest.mark.parametrize("mode", ["all_tables", "filtered", "disabled"])
def test_a_role_without_any_privilege_is_prepared_by_what_check_prints(
    pg: Cluster, program: Program, tmp_path: Path, mode: str
) -> None:
    database = pg.database(name=f"Shop of {tmp_path.name} {mode}")
    role = f'cdc "{database}"'
    pg.execute(database, SCHEMA)
    pg.execute(database, "create role {} login password 'pw'".format('"' + role.replace('"', '""') + '"'))
    file = connector(pg, tmp_path, database, role, **{"publication.autocreate.mode": mode})
    found = program.run("check", file)
    assert found.returncode == 1 and found.stdout.count("FAIL") >= 4, found.stdout + found.stderr
    script = program.run("check", file, "--sql", "--all")
    assert script.returncode == 0 and "left_out" not in script.stdout, script.stdout + script.stderr
    if mode == "filtered":
        pg.psql(database, "-c", printed_statements(found.stdout))
    else:
        (tmp_path / "prepare.sql").write_text(script.stdout)
        pg.run_script(database, tmp_path / "prepare.sql")
    assert passes(program, file), program.run("check", file).stdout
    again = program.run("check", file, "--sql", "--all")
    assert again.returncode == 0 and "-- Nothing is missing." in again.stdout
    assert all(not line or line.startswith("--") for line in again.stdout.splitlines()), again.stdout
    # Its list must follow the include list, which this role may not do itself.
    pg.execute(database, "create table f (id int primary key)")
    missing = program.run("check", file).stdout
    assert '"public"."f"' in missing and 'ADD TABLE "public"."f"' in missing, missing
    pg.psql(database, *(part for line in printed_statements(missing).splitlines() for part in ("-c", line)))
    assert passes(program, file), program.run("check", file).stdout


def test_a_server_on_which_nothing_is_prepared(pg: Cluster, program: Program, tmp_path: Path) -> None:
    database = pg.database("bare")
    pg.execute(database, "create table orders (id int primary key); create table items (id int primary key)")
    role = f"Reader {database}"
    patterns = {
        "schema.include.list": None,
        "table.exclude.list": None,
        "table.include.list": r"public.orders,public\.i.*",
    }
    partly = program.run("check", connector(pg, tmp_path, database, role, **patterns), "--sql")
    assert partly.returncode == 1, partly.stdout
    assert "LEFT OUT, as the server could not be queried for these tables: table.include.list=public" in partly.stdout
    assert "CREATE PUBLICATION" not in partly.stdout and 'GRANT SELECT ON TABLE "public"."orders"' in partly.stdout
    # An administrator's connection shows what the patterns name, and the script is complete.
    file = connector(pg, tmp_path, database, role, **patterns)
    order = ("check", file, "--sql", "--as", f"postgresql://{pg.user}@")
    assert "administrator's connection: The server at" in program.run(*order, PGPASSWORD="wrong").stdout
    whole = program.run(*order, PGPASSWORD=pg.password)
    assert whole.returncode == 0 and "LEFT OUT" not in whole.stdout, whole.stdout + whole.stderr
    (tmp_path / "prepare.sql").write_text(whole.stdout)
    pg.run_script(database, tmp_path / "prepare.sql")
    pg.execute(database, f"alter role \"{role}\" password 'pw'")
    assert passes(program, file), program.run("check", file).stdout
    other = connector(pg, tmp_path, database, role, **patterns, **{"database.password": "other"})
    refused = program.run("check", other, "--sql", "--as", f"user={pg.user}", PGPASSWORD=pg.password)
    assert refused.returncode == 1 and "refuses the password" in refused.stdout, "no statement corrects a password"

    database, role = pg.database("bare"), f"{role} by names"
    pg.execute(database, "create table orders (id int primary key); create table items (id int primary key)")
    lists = {"schema.include.list": None, "table.exclude.list": None}
    lists |= {"table.include.list": r"public.orders,public\.items"}
    file = connector(pg, tmp_path, database, role, **lists)
    script = program.run("check", file, "--sql")
    assert script.returncode == 0 and "pw" not in script.stdout.replace("psql", ""), script.stdout
    (tmp_path / "prepare.sql").write_text(script.stdout)
    pg.run_script(database, tmp_path / "prepare.sql")
    pg.execute(database, f"alter role \"{role}\" password 'pw'")
    assert passes(program, file), program.run("check", file).stdout


def test_values_that_a_run_would_refuse_or_not_store_are_reported(
    pg: Cluster, program: Program, tmp_path: Path
) -> None:
    database = pg.database("rules")
    pg.execute(
        database,
        "create domain amount as numeric; create table orders (id int primary key, n int, total amount, fine numeric);"
        "insert into orders select g, g, case when g % 4 = 0 then 0.12345678901234567891 else 1 end, 1e19 + 0.5 "
        "from generate_series(1, 100) g",
    )
    more: dict[str, Any] = {
        "database.user": pg.user,
        "database.password": pg.password,
        "wal2lake.lake.path": None,
        "wal2lake.state.path": "/proc/state",
        "schema.include.list": None,
    }
    file = connector(pg, tmp_path, database, "", **more)
    said = program.run("check", file)
    assert said.returncode == 1
    assert "wal2lake.lake.path is missing" in said.stdout
    assert "/proc cannot be written" in said.stdout
    assert "25 % of 100 sampled rows of public.orders have a value in total" in said.stdout
    assert "decimal(38,18)" in said.stdout and "in fine" not in said.stdout

    more |= {"wal2lake.lake.path": tmp_path / "lake", "wal2lake.state.path": tmp_path / "state"}
    for rule, found in (
        ("public.orders: after.nn > 0", "nn"),
        ("public.orders: after.n >", "syntax error"),
        ("public.orders: after.n + 1", "not BOOLEAN"),
    ):
        file = connector(pg, tmp_path, database, "", **more, **{"wal2lake.quality.rule.mine": rule})
        said = program.run("check", file)
        assert said.returncode == 1 and "FAIL rules: Quality rule mine of public.orders" in said.stdout, said.stdout
        assert found in said.stdout, said.stdout
    rules = {"wal2lake.quality.rule.mine": "public.order: after.n > 0"}
    file = connector(pg, tmp_path, database, "", **more, **rules)
    said = program.run("check", file)
    assert said.returncode == 0 and "Did you mean public.orders?" in said.stdout, said.stdout
    assert list(tmp_path.iterdir()) == [file], "nothing is left of the trials"
