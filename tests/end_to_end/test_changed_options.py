"""A connector file that captures other tables or columns than before, or masks others: what lacks is read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, lake_path, lake_settings, rows, write_properties
from tests.support.program import Program

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

KEPT, LEFT, LATE, HASHED, FREED = (TableId("public", name) for name in ("kept", "left_out", "late", "hashed", "freed"))
TABLES = (KEPT, LEFT, LATE, HASHED, FREED)
SALTED = "column.mask.hash.v2.SHA-256.with.salt."


def changes(value: str) -> str:
    return "".join(
        f"update {name.table} set v = '{value}' where id = 1; insert into {name.table} select max(id) + 1, '{value}' "
        f"from {name.table}; delete from {name.table} where id = (select min(id) + 1 from {name.table});"
        for name in TABLES
    )


@pytest.mark.parametrize("publication", ["disabled", "filtered"])
def test_what_was_not_captured_for_some_time_is_read_again(
    pg: Cluster, program: Program, tmp_path: Path, publication: str
) -> None:
    database = pg.database("options")
    filled = "insert into {0} select g, 'v' || g from generate_series(1, 9) g;"
    made = f"create table {{0}} (id int primary key, v text); {filled}"
    pg.execute(database, "".join(made.format(name.table) for name in TABLES))
    if publication == "disabled":
        pg.execute(
            database, f"create publication \"{database}\" for all tables with (publish = 'insert, update, delete')"
        )

    def file(tables: str, **more: Any) -> Path:
        settings = {"publication.autocreate.mode": publication, "table.include.list": tables, **lake_settings(tmp_path)}
        return write_properties(tmp_path / "options.properties", pg.properties(database, **{**settings, **more}))

    def streamed(file: Path) -> str:
        done = program.stream(file)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout + done.stderr

    said = streamed(
        file(r"public\.(?!late).*", **{f"{SALTED}one": r".*\.freed\.v", "column.exclude.list": r".*\.late\.v"})
    )
    assert ("does not publish truncate." in said) == (publication == "disabled")
    pg.execute(database, changes("first"))
    # A table and a column that are not captured for the length of a run.
    off = {f"{SALTED}one": r".*\.hashed\.v", "column.exclude.list": r".*\.kept\.v"}
    assert f"{HASHED} is re-read: the connector file now treats columns otherwise" in streamed(
        file(r"public\.(kept|hashed|freed)", **off)
    )
    pg.execute(database, changes("second"))
    now = file(r"public\..*", **{f"{SALTED}two": r".*\.hashed\.v"})
    said = streamed(now)
    for table in (KEPT, HASHED):
        assert f"{table} is re-read" in said
    assert difference(now, [KEPT, LEFT, LATE, FREED]) == []
    # Rows that no change has touched have the new salt, too: equal values are equal.
    pg.execute(database, "insert into hashed select id + 100, v from hashed")
    streamed(now)
    held = [row["v"] for row in rows(lake_path(load(now), HASHED))]
    (values,) = pg.execute(database, "select count(*), count(distinct v) from hashed")
    assert (len(held), len(set(held))) == values
    assert "is re-read" not in streamed(now)
    checked = program.run("check", file(r"public\..*", **{"column.exclude.list": r".*\.kept\.id"}))
    told = " ".join(checked.stdout.split())
    assert checked.returncode == 1 and "public.kept are identified by id" in told
    assert ("does not publish truncate." in told) == (publication == "disabled")
