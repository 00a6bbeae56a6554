"""Killed at each durable step, run again: the lake equals the source, the changelog has each event once.

Every failpoint stands in the matrix, under the way of writing that reaches it: files rewritten, rows marked, or either
as the slice's size says. Each step is a fresh run, killed at that place; the next one finds what it left behind.
"""

from pathlib import Path

import pytest

from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.faults import test_resumed_snapshots as resumed
from tests.faults.test_lake_signal_kills import STEPS as OF_SIGNALS
from tests.faults.test_large_slices import PLACES as OF_SHARES
from tests.faults.test_marked_kills import STEPS as OF_MARKS
from tests.support.lake import difference, doubled_events, lake_path, lake_settings, rows, write_properties
from tests.support.sampling import sample

NOTES, LINES, LOG, VISITS = (TableId("public", name) for name in ("notes", "lines", "log", "visits"))
TABLES = [NOTES, LINES, LOG]

SCHEMA = """
create table notes (id int primary key, title varchar(40), body text, n numeric(10,2));
alter table notes alter column body set storage external;
create table lines (a int, b text, v int, primary key (a, b));
create table log (at timestamptz default clock_timestamp(), what text);
create table visits (id int primary key, n int);
insert into notes select g, 'note ' || g, repeat(md5(g::text), 100), g from generate_series(1, 50) g;
insert into lines select g, 'k' || g, g from generate_series(1, 50) g;
insert into log (what) select 'line ' || g from generate_series(1, 50) g;
insert into visits values (0, 0);
"""
# Inserts, updates that leave the large text alone, a key change of such a row, and deletes.
CHANGES = """
begin;
insert into notes select {r} * 100 + g, 'new', repeat(md5(g::text), 100), g from generate_series(1, 5) g;
update notes set title = 'round {r}' where id % 3 = 0;
insert into log (what) values ('round {r}');
insert into visits values ({r}, {r});
commit;
update lines set v = v + {r} where a % 2 = 0;
update notes set id = id + 100000 where id = {r} + 10;
begin;
delete from lines where a = {r};
delete from notes where id = {r};
insert into log (what) values ('end {r}');
commit;
"""
# A snapshot's rows are not judged, so the rows to be refused come later.
REFUSED = "insert into visits values ({r} + 1000, -{r});"
EVOLUTION = "alter table lines add column e{r} int; alter table notes add column e{r} text default 'there';"
# So few messages a batch that these make more small files of one table than any table waits for (20).
SMALL_BATCHES = {"wal2lake.batch.max.rows": "3"}
MANY_BATCHES = "insert into log (what) select 'many ' || g from generate_series(1, 75) g;"

# Where the run is killed, and in which way it writes. ":2" is the second time that the place is reached.
REWRITTEN = [
    failpoints.AFTER_EPOCH_BEGUN,
    failpoints.AFTER_SLOT_CREATED,
    failpoints.AFTER_SLOT_RECORDED,
    failpoints.BEFORE_SNAPSHOT_COMMIT,
    f"{failpoints.AFTER_SNAPSHOT_COMMIT}:2",
    failpoints.AFTER_SPOOL,
    failpoints.BETWEEN_APPENDS,
    failpoints.DURING_APPEND,
    failpoints.AFTER_APPEND,
    failpoints.BEFORE_CONFIRM,
    failpoints.AFTER_CONFIRM,
    failpoints.AFTER_CONFIRM_RECORD,
    failpoints.AFTER_QUARANTINE,
    failpoints.DURING_MERGE,
    failpoints.BETWEEN_MERGES,
    failpoints.AFTER_APPLY,
    failpoints.BEFORE_ROUND_RECORD,
    failpoints.DURING_EVOLUTION,
    failpoints.AFTER_EVOLUTION,
    failpoints.DURING_COMPACTION,
]
# Notes are larger than what may be rewritten, the other tables are not.
BY_SIZE = [
    failpoints.DURING_MERGE,
    failpoints.AFTER_VECTORS,
    failpoints.AFTER_APPLY,
]
IN_SNAPSHOT = (
    failpoints.AFTER_EPOCH_BEGUN,
    failpoints.AFTER_SLOT_RECORDED,
    failpoints.AFTER_SLOT_CREATED,
    failpoints.BEFORE_SNAPSHOT_COMMIT,
    failpoints.AFTER_SNAPSHOT_COMMIT,
)
# Every slice is marked, whatever its size.
MARKED = [
    failpoints.AFTER_VECTORS,
    failpoints.DURING_MERGE,
    failpoints.AFTER_VECTORS,
    failpoints.AFTER_APPLY,
    failpoints.DURING_INDEX,
]
WAYS = {
    "rewritten": (REWRITTEN, {"wal2lake.lake.features": "widest"}),
    "by size": (BY_SIZE, {"wal2lake.merge.rewrite.max.bytes": "12000"}),
    "marked": (MARKED, {"wal2lake.merge.rewrite.max.bytes": "1"}),
}


def test_every_failpoint_is_in_the_matrix() -> None:
    of_ways = (step for steps, _ in WAYS.values() for step in steps)
    reached = {step.partition(":")[0] for step in (*of_ways, *OF_MARKS)} | OF_SIGNALS | OF_SHARES
    constants = {
        value for name, value in vars(failpoints).items() if name.isupper() and isinstance(value, str) and name != "ALL"
    }
    assert reached | set(resumed.STEPS) == set(failpoints.ALL) == constants


@pytest.mark.postgres
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_killed_at_every_step_the_lake_still_equals_the_source(pg, program, tmp_path, way):
    (places, writing), database = WAYS[way], pg.database("kill")
    pg.execute(database, SCHEMA)
    settings = pg.properties(
        database,
        **{
            "schema.include.list": "public",
            **lake_settings(tmp_path),
            **writing,
            "wal2lake.quality.rule.positive": "public.visits: after.n >= 0",
        },
    )

    def properties(**more: str) -> Path:
        return write_properties(tmp_path / "kill.properties", {**settings, **more})

    def run(step: str = "", **more: str) -> None:
        if step:
            program.killed_at(step, properties(**more))
            return
        done = program.stream(properties(**more))
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]

    # One of three in each run of the suite, all with WAL2LAKE_TEST_ALL=1.
    steps, refused = sample(places, max(2, len(places) // 3)), 0
    for number, step in enumerate(steps, 1):
        name = step.partition(":")[0]
        if name not in IN_SNAPSHOT:
            if not refused:
                run()
            refused += 1
            pg.execute(database, REFUSED.format(r=number))
        if name in (failpoints.DURING_EVOLUTION, failpoints.AFTER_EVOLUTION):
            pg.execute(database, EVOLUTION.format(r=number))
        pg.execute(database, CHANGES.format(r=number))
        if name == failpoints.DURING_COMPACTION:
            pg.execute(database, MANY_BATCHES)
            run(step, **SMALL_BATCHES)
        else:
            run(step)
    run()
    file = properties()
    assert difference(file, TABLES) == []
    assert [doubled_events(file, table) for table in (*TABLES, VISITS)] == [0, 0, 0, 0]
    # What the rule refused is in quarantine once, and nothing else is missing.
    config = load(file)
    assert [row["id"] for row in rows(lake_path(config, VISITS), "select id from t order by id")] == [
        *range(len(steps) + 1)
    ]
    quarantine = Path(config.lake.lake_path) / config.schema.topic_prefix / "__quarantine" / "public" / "visits"
    (kept,) = rows(quarantine, 'select count(*) as n, count(distinct ("__commit_lsn", "__tx_index")) as places from t')
    assert (kept["n"], kept["places"]) == (refused, refused)


@pytest.mark.parametrize("name", failpoints.ALL)
def test_an_unarmed_failpoint_does_nothing(name, monkeypatch):
    monkeypatch.delenv("WAL2LAKE_FAILPOINT", raising=False)
    failpoints.hit(name)
    monkeypatch.setenv("WAL2LAKE_FAILPOINT", "another")
    failpoints.hit(name)
