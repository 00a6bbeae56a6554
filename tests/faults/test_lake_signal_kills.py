"""Killed at each durable step of the snapshots that signals ask for: done all the same, and rows read go to the
changelog once."""

from __future__ import annotations

import json

import deltalake
import pytest

from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.lake import changelog_path, difference, lake_path, lake_settings, rows, write_properties

NOTES = TableId("public", "notes")
SCHEMA = """
create table notes (id int primary key, n int, body text);
alter table notes alter column body set storage external;
create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048));
insert into notes select g, g, repeat(md5(g::text), 80) from generate_series(1, 90) g;
analyze;
"""
CHUNKED = [
    failpoints.AFTER_SIGNAL,
    failpoints.BEFORE_STAGING,
    failpoints.AFTER_STAGING,
    failpoints.BEFORE_CHUNK_APPLY,
    f"{failpoints.BEFORE_CHUNK_APPLY}:2",
    failpoints.DURING_CHUNK_APPLY,
    failpoints.AFTER_CHUNK_APPLY,
    failpoints.BEFORE_UNSTAGING,
]
BLOCKING = [failpoints.AFTER_SIGNAL, failpoints.BEFORE_SNAPSHOT_COMMIT, failpoints.AFTER_BLOCKING]
STEPS = {step.partition(":")[0] for step in (*CHUNKED, *BLOCKING)}

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize(("kind", "steps"), [("incremental", CHUNKED), ("blocking", BLOCKING)])
def test_killed_at_every_step_of_a_snapshot_it_is_done_once(pg, program, tmp_path, kind, steps):
    database = pg.database("steps")
    pg.execute(database, SCHEMA)
    rules = {
        "table.include.list": "public.notes",
        "signal.data.collection": "public.signals",
        "snapshot.mode": "no_data",
        "incremental.snapshot.chunk.size": "10",
        "wal2lake.snapshot.rows.per.partition": "15",
        **lake_settings(tmp_path),
        "wal2lake.changelog.reads": "true",
    }
    file = write_properties(tmp_path / "steps.properties", pg.properties(database, **rules))
    config = load(file)
    assert program.stream(file).returncode == 0
    data = json.dumps({"data-collections": ["public.notes"], "type": kind})
    pg.execute(database, "insert into signals values ('1', 'execute-snapshot', %s)", [data])
    for number, step in enumerate(steps, 1):
        # Updates that do not send the large value, a key change, a row that goes.
        pg.execute(database, f"update notes set n = n + 1000 where id % 4 = {number % 4}")
        pg.execute(
            database, f"update notes set id = id + 1000 where id = {90 - number}; delete from notes where id = {number}"
        )
        program.killed_at(step, file)
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]
    assert difference(file, [NOTES]) == []
    reads = "select count(*) as n, count(distinct after['id']) as keys from t where \"__op\" = 'r'"
    (found,) = rows(changelog_path(config, NOTES), reads)
    if kind == "incremental":
        # Each landing's rows are there once; a key that was changed, and read once more for it, stands there twice.
        assert found["keys"] >= 80 and found["n"] <= found["keys"] + len(steps)
    # A signal that was obeyed is not obeyed again: what is damaged now stays so.
    deltalake.DeltaTable(str(lake_path(config, NOTES))).update({"n": "-1"}, predicate="id = 50")
    assert program.stream(file).returncode == 0
    assert [row["n"] for row in rows(lake_path(config, NOTES), "select n from t where id = 50")] == [-1]
    pg.drop_database(database)
