"""Columns named like wal2lake's own helpers, or with characters that mean something to SQL, Spark or Delta."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import changelog_path, doubled_events, lake_path, lake_settings, rows, write_properties
from tests.support.program import Program

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

COLUMNS = [
    *(
        "x",
        "x@1",
        "x@2",
        "x@1@2",
        "__op",
        "__lsn",
        "__unchanged",
        "__schema_version",
        "__number",
        "__constant_0",
        "__renamed_0",
    ),
    *("before", "after", "a b", "a.b", "a,b", "a=b", "a`b", 'say "hi"', "é", "it's", "a\\b", "{x}", "x;", "_metadata"),
]
TABLES = [TableId("public", name) for name in ("keyed", "keyless", "odd_key")]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.mark.parametrize("rewritten", ["67108864", "1"])
def test_every_column_keeps_its_own_values(pg: Cluster, program: Program, tmp_path: Path, rewritten: str) -> None:
    database = pg.database("columns")
    file = write_properties(
        tmp_path / "columns.properties",
        pg.properties(
            database,
            **{
                "table.include.list": ",".join(map(str, TABLES)).replace(".", r"\."),
                "publication.autocreate.mode": "filtered",
                "wal2lake.merge.rewrite.max.bytes": rewritten,
                **lake_settings(tmp_path),
            },
        ),
    )
    names = list(COLUMNS)

    def judge() -> None:
        assert program.stream(file).returncode == 0
        config = load(file)
        for table in TABLES:
            picked = ", ".join(f"coalesce({quoted(name)}, '<null>')" for name in names)
            source = sorted(pg.execute(database, f"select id::text, {picked} from {table.table}"))
            found = rows(lake_path(config, table))
            lake = sorted(
                (str(row["id"]), *(row[n] if row[n] is not None else "<null>" for n in names)) for row in found
            )
            assert lake == source, table
            assert not changelog_path(config, table).exists() or doubled_events(file, table) == 0

    def write(ident: int, text: str) -> None:
        values = ", ".join("'" + f"{text} {name}".replace("'", "''") + "'" for name in names)
        columns = ", ".join(map(quoted, names))
        for table in TABLES:
            pg.execute(database, f"insert into {table.table} (id, {columns}) values ({ident}, {values})")

    columns = ", ".join(f"{quoted(name)} text" for name in names)
    pg.execute(database, f"create table keyed (id int primary key, {columns})")
    pg.execute(database, f"create table keyless (id int, {columns}); alter table keyless replica identity full")
    pg.execute(database, f'create table odd_key (id int, {columns}, primary key ("x@1", "a.b", "a`b"))')
    write(1, "snapshot")
    judge()
    for step, failpoint in enumerate((failpoints.AFTER_APPEND, failpoints.BEFORE_CONFIRM), start=2):
        write(step, f"stream {step}")
        change = ", ".join(f"{quoted(name)} = {quoted(name)} || '!'" for name in names)
        pg.execute(database, "; ".join(f"update {table.table} set {change} where id = 1" for table in TABLES))
        program.killed_at(failpoint, file)
    judge()
    # Names that are exchanged in a ring, and a column that another type of x would be stored in.
    for table in TABLES:
        pg.execute(
            database,
            f'alter table {table.table} rename x to "y@1"; alter table {table.table} rename "x@2" to x;'
            f'alter table {table.table} rename "y@1" to "x@2"; alter table {table.table} drop "__op"',
        )
    names.remove("__op")
    write(9, "renamed")
    program.killed_at(failpoints.AFTER_APPEND, file)
    judge()
    pg.drop_database(database)
