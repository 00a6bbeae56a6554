"""Remedies are followed as they are printed, statements and commands: the lake equals its source then."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.program import Program

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

T, NAMED = TableId("public", "t"), TableId("My shop", 'the "last" orders')
SCHEMA = """
create table t (id int primary key, n int);
insert into t select g, g from generate_series(1, 5) g;
create schema "My shop";
create table "My shop"."the ""last"" orders" (id int primary key, n int);
insert into "My shop"."the ""last"" orders" select g, g from generate_series(1, 5) g;
"""
STATEMENT = re.compile(r"SELECT pg_drop_replication_slot\('[^']*'\)")
# With its arguments, of which those with blanks are quoted.
COMMAND = re.compile(r"wal2lake (snapshot|replay)((?: (?:'[^']*'|/[^\s,']+|[\w.]+\.\w+))*)")


class Follower:
    """One connector, and what its messages tell the user to do. Its file and a table have names with blanks."""

    def __init__(self, pg: Cluster, program: Program, folder: Path) -> None:
        self.pg, self.program = pg, program
        self.database = pg.database("remedies")
        pg.execute(self.database, SCHEMA)
        more = {
            "schema.include.list": "public,My shop",
            "wal2lake.lake.schema.changes": "pause",
            "wal2lake.quality.rule.small": "public.t: after.n < 100",
        }
        properties = pg.properties(self.database, **lake_settings(folder), **more)
        self.file = write_properties(folder / "my shop.properties", properties)
        assert program.stream(self.file).returncode == 0

    def said(self, statements: str) -> str:
        """What a run and ``status`` say after the statements."""
        self.pg.execute(self.database, statements)
        done = self.program.stream(self.file)
        return done.stderr + self.program.run("status", self.file).stdout

    def follow(self, said: str) -> None:
        """Do what the lines after an arrow say, in their order."""
        remedies = [line.partition("→ ")[2] for line in said.splitlines() if "→ " in line]
        assert remedies, said
        for statement in STATEMENT.findall("\n".join(remedies)):
            self.pg.psql(self.database, "-c", statement)
        commands = dict.fromkeys(COMMAND.findall("\n".join(remedies)))
        assert commands, said
        for command, arguments in commands:
            followed = self.program.run(command, *(shlex.split(arguments) or [self.file]))
            assert followed.returncode == 0, (command, arguments, followed.stdout + followed.stderr)

    def is_equal(self) -> None:
        done = self.program.stream(self.file)
        assert done.returncode == 0, done.stderr
        assert difference(self.file, [T, NAMED]) == []


def test_a_remedy_works_as_it_is_printed(pg: Cluster, program: Program, tmp_path: Path) -> None:
    one = Follower(pg, program, tmp_path)
    name = '"My shop"."the ""last"" orders"'
    slot = one.database
    for statements, found in (
        (f"select pg_drop_replication_slot('{slot}'); insert into t values (10, 10)", "no longer exists"),
        (f'drop publication "{slot}"; insert into t values (11, 11)', "did not exist when the changes"),
        (f"alter table {name} alter column n type text using n::text; update {name} set n = '12'", "has been paused"),
        (f"alter table {name} alter column n type int using n::int", "has been paused"),
        ("insert into t values (100, 100), (101, 1)", "1 changes are waiting in quarantine"),
    ):
        said = one.said(statements)
        assert found in said, said
        if "quarantine" in found:
            pg.execute(one.database, "update t set n = 99 where id = 100")
        one.follow(said)
        one.is_equal()
    assert program.run("status", one.file).stdout.count("→") == 0
