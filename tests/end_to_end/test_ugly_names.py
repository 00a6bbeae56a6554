"""Tables whose names mean something to file systems, URLs, SQL or Delta: each has its own folder, whatever is done."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pytest

from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.lake.paths import LakePaths
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import lake_settings, rows, write_properties
from tests.support.program import Program

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

NAMES = [
    *(
        "a",
        "A",
        "a/b",
        "a%2Fb",
        "%41",
        "..",
        ".",
        "x.",
        " ",
        "a\\b",
        "it's",
        'say "x"',
        "a`b",
        "a\nb",
        "con",
        "_delta_log",
    ),
    *("{x}", "[y]|^", "k=v", "a:b?c#d", "~2F", "été", "e\u0301", "中" * 21),
]
SCHEMAS = ["public", "__changelog", "we/ird"]
TABLES = [TableId("public", name) for name in NAMES] + [TableId(schema, "a") for schema in SCHEMAS[1:]]


def quoted(table: TableId) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in (table.schema, table.table))


def test_every_table_has_its_own_folder(pg: Cluster, program: Program, tmp_path: Path) -> None:
    database = pg.database("ugly")

    def execute(statement: str) -> None:
        pg.execute(database, "; ".join(statement.replace("TABLE", quoted(table)) for table in TABLES))

    def file(**more: str) -> Path:
        given = {"schema.include.list": ".*", "publication.autocreate.mode": "filtered", **more}
        settings = pg.properties(database, **{**given, **lake_settings(tmp_path)})
        return write_properties(tmp_path / "ugly.properties", settings)

    def judge() -> None:
        config = load(file())
        paths = LakePaths(config.lake.lake_path, config.schema.topic_prefix)
        shown = program.run("versions", file(), "--json")
        assert shown.returncode == 0, shown.stderr
        known = {each["table"]: each["path"] for each in json.loads(shown.stdout)["tables"]}
        wrong = {}
        for table in TABLES:
            source = sorted(pg.execute(database, f"select id, v from {quoted(table)}"))
            path = paths.lake(table)
            lake = sorted((row["id"], row["v"]) for row in rows(Path(path)))
            if source != lake or known[str(table)] != path:
                wrong[str(table)] = (source, lake, path)
        assert not wrong, "\n".join(map(str, wrong.items()))

    pg.execute(database, "; ".join(f'create schema "{name}"' for name in SCHEMAS[1:]))
    execute("create table TABLE (id int primary key, v text)")
    for number, table in enumerate(TABLES):
        pg.execute(database, f"insert into {quoted(table)} values ({number}, 'first'), (1000, 'gone')")
    done = program.stream(file())
    assert done.returncode == 0, done.stderr[-3000:]
    judge()

    execute("update TABLE set v = 'second' where id < 1000")
    program.killed_at(failpoints.BEFORE_CONFIRM, file())
    execute("delete from TABLE where id = 1000")
    assert program.stream(file()).returncode == 0
    judge()

    for table in (TABLES[2], TABLES[4], TABLES[5]):
        pg.execute(database, f"alter table {quoted(table)} alter v type varchar using v || '!'")
    assert program.stream(file()).returncode == 0
    judge()
    replayed = program.run("replay", file(), "public.a/b")
    assert replayed.returncode == 0, replayed.stderr
    status = program.run("status", file(), "--json")
    listed = json.loads(status.stdout)["tables"]
    assert {one["table"] for one in listed} == {str(table) for table in TABLES}
    assert [one["table"] for one in listed if not deltalake.DeltaTable.is_deltatable(one["path"])] == []
    assert len({one["path"] for one in listed}) == len(TABLES)
    kept = program.run("maintain", file(), "--json")
    assert kept.returncode == 0, kept.stderr[-2000:]
    reports = [json.loads(line) for line in kept.stdout.splitlines()]
    assert {str(table) for table in TABLES} <= {one["table"] for one in reports if one["kind"] == "lake"}
    judge()
    pg.drop_database(database)
