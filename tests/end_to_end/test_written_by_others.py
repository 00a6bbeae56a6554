"""Lake tables that other programs write to, or replace by an older copy: said, or read again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import changelog_path, difference, lake_path, lake_settings, write_properties
from tests.support.program import Program

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

NAMES = ("appended", "removed", "restored", "older", "compacted")
APPENDED, REMOVED, RESTORED, OLDER, COMPACTED = (TableId("public", name) for name in NAMES)
TABLES = (APPENDED, REMOVED, RESTORED, OLDER, COMPACTED)


def test_foreign_commits_are_reported_and_an_older_copy_is_read_again(
    pg: Cluster, program: Program, tmp_path: Path
) -> None:
    database = pg.database("others")
    settings = {"schema.include.list": "public", "publication.autocreate.mode": "filtered", **lake_settings(tmp_path)}
    file = write_properties(tmp_path / "others.properties", pg.properties(database, **settings))
    for name in NAMES:
        pg.execute(database, f"create table {name} (id int primary key, v text)")
        pg.execute(database, f"insert into {name} select g, 'v' from generate_series(1, 30) g")

    def streamed(first: int) -> str:
        for name in NAMES:
            pg.execute(database, f"update {name} set v = v || 'w' where id between {first} and {first + 3}")
        done = program.stream(file)
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        return " ".join((done.stdout + done.stderr).split())

    assert program.stream(file).returncode == 0  # the snapshot
    streamed(1)
    config = load(file)
    folders = [lake_path(config, OLDER), changelog_path(config, OLDER)]
    for folder in folders:
        shutil.copytree(folder, tmp_path / "copies" / folder.relative_to(tmp_path))
    streamed(10)
    assert difference(file, list(TABLES)) == []

    lake = {table: str(lake_path(config, table)) for table in TABLES}
    for folder in folders:
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "copies" / folder.relative_to(tmp_path), folder)
    rows = DeltaTable(lake[APPENDED]).to_pyarrow_table()
    write_deltalake(lake[APPENDED], rows.slice(0, 2), mode="append")
    DeltaTable(lake[REMOVED]).delete("id = 25")
    restored = DeltaTable(lake[RESTORED])
    restored.restore(restored.version() - 1)
    DeltaTable(lake[COMPACTED]).optimize.z_order(["v"])
    said = streamed(20)
    for table in (APPENDED, REMOVED, RESTORED):
        assert f"{table}: version" in said and f"wal2lake snapshot with {table}" in said, said
    assert f"{OLDER} is re-read: its folder has version" in said
    assert f"{COMPACTED}: version" not in said
    assert difference(file, [OLDER, COMPACTED]) == []
    assert len(difference(file, [APPENDED, REMOVED, RESTORED])) == 3
    # Said once; and what the line advises makes them equal.
    assert "was written by another program" not in streamed(22)
    again = program.run("snapshot", file, *(str(table) for table in (APPENDED, REMOVED, RESTORED)))
    assert again.returncode == 0, again.stderr[-3000:]
    shutil.rmtree(changelog_path(config, COMPACTED))
    said = streamed(5)
    assert "was written by another program" not in said
    assert said.count("its changelog no longer exists") == 1 and f"{COMPACTED}: its changelog" in said
    assert difference(file, list(TABLES)) == []
