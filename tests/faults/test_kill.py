"""Killed at each durable step, run again: the lake equals the source, the changelog has each event once."""

import signal

import pytest

from cdc_core import failpoints
from cdc_core.schema.table import TableId
from tests.support.lake import difference, doubled_events, write_properties

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

NOTES, LINES, LOG = TableId("public", "notes"), TableId("public", "lines"), TableId("public", "log")
TABLES = [NOTES, LINES, LOG]

SCHEMA = """
create table notes (id int primary key, title varchar(40), body text, n numeric(10,2));
alter table notes alter column body set storage external;
create table lines (a int, b text, v int, primary key (a, b));
create table log (at timestamptz default clock_timestamp(), what text);
insert into notes select g, 'note ' || g, repeat(md5(g::text), 100), g from generate_series(1, 50) g;
insert into lines select g, 'k' || g, g from generate_series(1, 50) g;
insert into log (what) select 'line ' || g from generate_series(1, 50) g;
"""
# Inserts, updates that leave the large text alone, a key change of such a row, deletes: four transactions.
CHANGES = """
begin;
insert into notes select {r} * 100 + g, 'new', repeat(md5(g::text), 100), g from generate_series(1, 5) g;
update notes set title = 'round {r}' where id % 3 = 0;
insert into log (what) values ('round {r}');
commit;
update lines set v = v + {r} where a % 2 = 0;
update notes set id = id + 100000 where id = {r} + 10;
begin;
delete from lines where a = {r};
delete from notes where id = {r};
insert into log (what) values ('end {r}');
commit;
"""
# Each step is a fresh run, killed at that place. The merge is killed with the Java process that does it.
STEPS = [
    failpoints.AFTER_SLOT_CREATED,
    f"{failpoints.AFTER_SNAPSHOT_COMMIT}:2",
    failpoints.AFTER_SPOOL,
    failpoints.BETWEEN_APPENDS,
    failpoints.BEFORE_CONFIRM,
    failpoints.AFTER_CONFIRM,
    failpoints.DURING_MERGE,
    failpoints.BETWEEN_MERGES,
]


def test_killed_at_every_step_the_lake_still_equals_the_source(pg, program, tmp_path):
    database = pg.database("kill")
    pg.execute(database, SCHEMA)
    properties = write_properties(
        tmp_path / "kill.properties",
        pg.properties(
            database,
            **{
                "schema.include.list": "public",
                "wal2lake.lake.path": str(tmp_path / "lake"),
                "wal2lake.state.path": str(tmp_path / "state"),
                "wal2lake.freshness.seconds": "0",
            },
        ),
    )
    for number, step in enumerate(STEPS, 1):
        pg.execute(database, CHANGES.format(r=number))
        done = program.stream(properties, step, cold=step == failpoints.DURING_MERGE)
        assert done.returncode == -signal.SIGKILL, f"{step} was not reached:\n{done.stderr[-3000:]}"
    done = program.stream(properties)
    assert done.returncode == 0, done.stderr[-3000:]
    assert difference(properties, TABLES) == []
    assert [doubled_events(properties, table) for table in TABLES] == [0, 0, 0]


@pytest.mark.parametrize("name", failpoints.ALL)
def test_an_unarmed_failpoint_does_nothing(name, monkeypatch):
    monkeypatch.delenv("WAL2LAKE_FAILPOINT", raising=False)
    failpoints.hit(name)
    monkeypatch.setenv("WAL2LAKE_FAILPOINT", "another")
    failpoints.hit(name)
