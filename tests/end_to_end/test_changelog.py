"""The changelog as configured: with the snapshot's rows, once each whatever happens, and without old changes."""

import signal

import pytest
from deltalake import DeltaTable

from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.lake import changelog_path, difference, rows, write_properties

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

CHOSEN, WHOLE = TableId("public", "chosen"), TableId("public", "whole")
SCHEMA = """
create table chosen (id int primary key, v text);
create table whole (id int primary key, v text);
insert into chosen select g, 'v' || g from generate_series(1, 20) g;
insert into whole select g, 'v' || g from generate_series(1, 20) g;
"""
COUNTS = 'select "__op" as op, count(*) as n, count(distinct "after"[\'id\']) as ids from t group by 1 order by 1'


def test_reads_once_through_a_crash_and_old_changes_gone(pg, program, tmp_path):
    database = pg.database("changelog")
    pg.execute(database, SCHEMA)
    statement = "snapshot.select.statement.overrides"
    file = write_properties(
        tmp_path / "changelog.properties",
        pg.properties(
            database,
            **{
                "schema.include.list": "public",
                statement: "public.chosen",
                f"{statement}.public.chosen": "select * from chosen where id <= 5",
                # Without a place in the list it says nothing.
                f"{statement}.public.whole": "select * from whole where id <= 5",
                "wal2lake.lake.path": str(tmp_path / "lake"),
                "wal2lake.state.path": str(tmp_path / "state"),
                "wal2lake.merge.interval.seconds": "0",
                "wal2lake.changelog.reads": "true",
                "wal2lake.changelog.retention.days": "2",
            },
        ),
    )
    config = load(file)

    def counts(table):
        return [tuple(row.values()) for row in rows(changelog_path(config, table), COUNTS)]

    # Killed between a table's commit and its reads: the next run takes the others, and completes this one.
    done = program.stream(file, f"{failpoints.AFTER_SNAPSHOT_COMMIT}:2")
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    pg.execute(database, "insert into whole values (21, 'new'); delete from whole where id = 1")
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]
    assert counts(CHOSEN) == [("r", 5, 5)]
    assert counts(WHOLE) == [("c", 1, 1), ("d", 1, 0), ("r", 20, 20)]
    assert difference(file, [WHOLE]) == []

    # Three days later.
    older = {"__commit_ts": "\"__commit_ts\" - interval '3 days'"}
    for table in (CHOSEN, WHOLE):
        DeltaTable(str(changelog_path(config, table))).update(updates=older)
    pg.execute(database, "insert into whole values (22, 'newer')")
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]
    assert counts(CHOSEN) == []
    assert counts(WHOLE) == [("c", 1, 1)]
    assert difference(file, [WHOLE]) == []
