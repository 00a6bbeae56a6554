"""The changelog as configured: with the snapshots' rows, once each whatever happens, and without old changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_core import failpoints
from cdc_core.assemble import Connector
from cdc_core.engine.reports import Until
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import changelog_path, difference, lake_settings, rows, write_properties
from tests.support.spark import SETTINGS, test_session

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

CHOSEN, WHOLE = TableId("public", "chosen"), TableId("public", "whole")
SCHEMA = """
create table chosen (id int primary key, v text);
create table whole (id int primary key, v text);
insert into chosen select g, 'v' || g from generate_series(1, 20) g;
insert into whole select g, 'v' || g from generate_series(1, 20) g;
"""
COUNTS = 'select "__op" as op, count(*) as n, count(distinct "after"[\'id\']) as ids from t group by 1 order by 1'


class CrashError(Exception):
    pass


def crash_after_the_lake_has_it(name: str) -> None:
    if name == failpoints.AFTER_SNAPSHOT_COMMIT:
        raise CrashError


def configured(pg: Cluster, database: str, folder: Path) -> Path:
    statement = "snapshot.select.statement.overrides"
    settings = {
        "schema.include.list": "public",
        statement: "public.chosen",
        f"{statement}.public.chosen": "select * from chosen where id <= 5",
        # Without a place in the list it says nothing.
        f"{statement}.public.whole": "select * from whole where id <= 5",
        **lake_settings(folder),
        "wal2lake.changelog.reads": "true",
        "wal2lake.changelog.retention.days": "2",
        **{f"wal2lake.spark.{name}": value for name, value in SETTINGS.items()},
    }
    return write_properties(folder / "changelog.properties", pg.properties(database, **settings))


def test_reads_once_through_crashes_and_expired_changes(
    pg: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = pg.database("changelog")
    pg.execute(database, SCHEMA)
    file = configured(pg, database, tmp_path)
    connector, spark = Connector.from_file(file), test_session()

    def counts(table: TableId) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in rows(changelog_path(connector.config, table), COUNTS)]

    def stream() -> None:
        connector.stream(Until(idle_seconds=1, max_seconds=1500), spark=spark)

    for table in (CHOSEN, WHOLE):
        with monkeypatch.context() as patch, pytest.raises(CrashError):
            patch.setattr(failpoints, "hit", crash_after_the_lake_has_it)
            connector.snapshot([table], spark=spark)
        assert not changelog_path(connector.config, table).exists()
    # The next snapshot first completes the reads of the one it replaces; the stream completes the other table's.
    connector.snapshot([WHOLE], spark=spark)
    assert counts(WHOLE) == [("r", 40, 20)]
    pg.execute(database, "insert into whole values (21, 'new'); delete from whole where id = 1")
    stream()
    assert counts(CHOSEN) == [("r", 5, 5)]
    assert counts(WHOLE) == [("c", 1, 1), ("d", 1, 0), ("r", 40, 20)]
    assert difference(file, [WHOLE]) == []

    # Three days later.
    older = {"__commit_ts": "\"__commit_ts\" - interval '3 days'"}
    for table in (CHOSEN, WHOLE):
        DeltaTable(str(changelog_path(connector.config, table))).update(updates=older)
    pg.execute(database, "insert into whole values (22, 'newer')")
    stream()
    assert counts(CHOSEN) == []
    assert counts(WHOLE) == [("c", 1, 1)]
    assert difference(file, [WHOLE]) == []
