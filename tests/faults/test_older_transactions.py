"""A worker that outlives its run: stopped before a commit, continued when the next run is done, and nothing happens."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from cdc_core import failpoints
from cdc_core.schema.table import TableId
from tests.support.lake import difference, doubled_events, lake_settings, write_properties
from tests.support.processes import state
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

ITEMS, KEYLESS = TableId("public", "items"), TableId("public", "keyless")
SCHEMA = """
create table items (id int primary key, v int);
create table keyless (v int);
alter table keyless replica identity full;
insert into items select g, g from generate_series(1, 20) g;
insert into keyless select g % 3 from generate_series(1, 20) g;
"""
# One transaction of some hundred messages, and one behind it.
CHANGES = """
begin;
insert into items select g, g from generate_series(21, 60) g;
insert into keyless select g % 3 from generate_series(1, 30) g;
update items set v = -v where id % 2 = 0;
delete from keyless where ctid in (select ctid from keyless where v = 1 limit 5);
commit;
delete from items where id % 5 = 0;
"""


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def below(pid: int) -> list[int]:
    """Every process under ``pid``."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = parent(int(entry.name))
            except OSError:
                continue  # it ended while we looked
    found, more = [], [pid]
    while more:
        more = [each for each, above in parents.items() if above in more]
        found += more
    return found


def stopped_below(pid: int) -> list[int]:
    return [each for each in below(pid) if state(each) == "T"]


@pytest.mark.parametrize(
    ("place", "rows_a_batch"),
    [
        (f"{failpoints.DURING_APPEND}:1", 10_000),
        (f"{failpoints.DURING_APPEND}:2", 40),  # inside of a transaction that is cut
        (f"{failpoints.DURING_MERGE}:1", 10_000),
    ],
)
def test_a_worker_that_outlives_its_run_changes_nothing(pg, program, tmp_path, place, rows_a_batch):
    database = pg.database(f"outlived_{place.replace('-', '_').replace(':', '_')}")
    pg.execute(database, SCHEMA)
    settings = pg.properties(
        database,
        **{
            "schema.include.list": "public",
            **lake_settings(tmp_path),
            "wal2lake.batch.max.rows": rows_a_batch,
        },
    )
    file = write_properties(tmp_path / "outlived.properties", settings)
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]
    pg.execute(database, CHANGES)
    asleep: list[int] = []
    try:
        limits = ("--max-seconds", "1500")
        with program.started("run", file, *limits, own_java=True, WAL2LAKE_FAILPOINT=f"{place}:stop") as run:
            top = program.forks.pid
            asleep = wait_until(lambda: stopped_below(top), 240, "a worker at its place", 0.2)
            # Whoever would end the workers goes first, and at once: their daemon, Spark's Java process, the run. Not
            # the workers of the borrowed Java process, which are below the same one: the next run goes on with them.
            daemons = {parent(each) for each in asleep}
            others = [one for each in daemons for one in below(each)]
            above = [*daemons, *below(run.process.pid), run.process.pid, *others]
            for pid in [each for each in above if each not in asleep]:
                with suppress(ProcessLookupError):  # it ended with the one above it
                    os.kill(pid, signal.SIGKILL)
            run.end(signal.SIGKILL)
        assert all(state(pid) == "T" for pid in asleep)
        done = program.stream(file)
        assert done.returncode == 0, done.stderr[-3000:]
        assert difference(file, [ITEMS, KEYLESS]) == []
    finally:
        for pid in asleep:
            if state(pid) == "T":
                os.kill(pid, signal.SIGCONT)
    wait_until(lambda: all(state(pid) in ("", "Z") for pid in asleep), 60, "the end of the workers")
    assert difference(file, [ITEMS, KEYLESS]) == []
    assert [doubled_events(file, table) for table in (ITEMS, KEYLESS)] == [0, 0]
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]
    assert difference(file, [ITEMS, KEYLESS]) == []
