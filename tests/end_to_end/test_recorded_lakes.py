"""Lakes that earlier releases have written are read as they were, and continued (tests/support/recorded_lake)."""

from __future__ import annotations

import pytest

import wal2lake
from tests.support.lake import write_properties
from tests.support.recorded_lake import (
    CHANGES,
    FILL,
    LARGEST,
    PREFIX,
    SCHEMA,
    TABLES,
    archives,
    contents,
    extracted,
    plain,
    settings,
)

EACH_LAKE = pytest.mark.parametrize("archive", archives(), ids=lambda archive: archive.name.removesuffix(".tar.gz"))
LATER = """
update {table} set n = 7, remark = 'later' where id in (1, 2); delete from {table} where id = 5;
insert into {table} (id) values (30);
"""


def of_recorded_columns(now, before):
    """The rows without columns that a later release adds to its results."""
    columns = {name for row in before for name in row}
    return [{name: value for name, value in row.items() if name in columns} for row in now]


def test_there_is_a_recorded_lake():
    assert archives()
    assert [path.name for path in archives() if path.stat().st_size > LARGEST] == []


@EACH_LAKE
def test_a_recorded_lake_is_read_as_it_was(archive, tmp_path):
    recorded = extracted(archive, tmp_path)
    now = contents(tmp_path / "lake" / PREFIX)
    for kind, tables in recorded.items():
        for table, before in tables.items():
            assert of_recorded_columns(now[kind][table], before) == before, (kind, table)


@pytest.mark.postgres
@pytest.mark.spark
@EACH_LAKE
def test_a_recorded_lake_is_continued(archive, pg, program, tmp_path):
    """By a snapshot, as the server that it was recorded from has gone; deleted rows and old versions stay."""
    recorded = extracted(archive, tmp_path)
    database = pg.database()
    file = write_properties(tmp_path / "shop.properties", pg.properties(database, **settings(tmp_path)))
    statements = [change.format(table=table) for change in CHANGES for table in TABLES]
    pg.execute(database, SCHEMA + FILL + "".join(statements))
    for command, arguments in (("snapshot", ()), ("run", ("--until-idle", "0.2", "--max-seconds", "1500"))):
        done = program.run(command, file, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        if command == "snapshot":
            pg.execute(database, "".join(LATER.format(table=table) for table in TABLES))
    lake = wal2lake.open(tmp_path / "lake" / PREFIX)
    for table in TABLES:
        live = plain(lake.read(f"public.{table}")[f"public.{table}"].arrow())
        source = pg.execute(database, f"select id, remark, late from {table} order by id, remark, late")
        assert sorted((row["id"], row["remark"], row["late"]) for row in live) == [tuple(row) for row in source]
    for table in ("soft", "past"):
        kept = plain(lake.read(f"public.{table}", all_rows=True)[f"public.{table}"].arrow())
        assert len(kept) > len(recorded["all rows"][f"public.{table}"])
