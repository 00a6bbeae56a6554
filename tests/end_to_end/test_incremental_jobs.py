"""Incremental snapshots as jobs: ranges read in parallel Spark tasks, with and without a stream beside them."""

from __future__ import annotations

import logging
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltalake
import pytest

from cdc_core.assemble import Connector
from cdc_core.config.connector import load
from cdc_core.engine.reports import Until
from cdc_core.errors import TableError
from cdc_core.schema.table import TableId
from cdc_core.snapshot.incremental.reports import IncrementalProgress, RangeReport
from cdc_core.spark import parallelism
from tests.support.lake import difference, lake_path, lake_settings, rows, write_properties
from tests.support.spark import test_session
from tests.support.waits import patient, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

NOTES, LINES = TableId("public", "notes"), TableId("public", "lines")
SCHEMA = """
create table notes (id int primary key, title text, body text);
alter table notes alter column body set storage external;
create table lines (a int, b text collate "C", v int, primary key (a, b));
create table keyless (v int);
alter table keyless replica identity full;
insert into notes select g, 'note ' || g, repeat(md5(g::text), 100) from generate_series(1, 400) g;
insert into lines select g % 20, 'k' || g, g from generate_series(1, 400) g;
analyze;
"""


def connector_file(pg, database: str, folder: Path, **more: str) -> Path:
    settings = {
        "table.include.list": "public.notes,public.lines,public.keyless",
        "snapshot.mode": "no_data",
        "incremental.snapshot.chunk.size": "10",
        "wal2lake.snapshot.rows.per.partition": "100",
        **lake_settings(folder),
        **more,
    }
    return write_properties(folder / "jobs.properties", pg.properties(database, **settings))


def test_without_a_stream_a_job_reads_its_ranges_and_streams_until_they_are_written(pg, tmp_path, caplog):
    caplog.set_level(logging.INFO, "cdc_core.snapshot.notifications")
    database = pg.database("jobs")
    pg.execute(database, SCHEMA)
    more = {"wal2lake.changelog.reads": "true", "notification.enabled.channels": "log"}
    file = connector_file(pg, database, tmp_path, **more)
    connector = Connector.from_file(file)
    connector.initial_snapshot(spark=test_session())
    connector.stream(Until(idle_seconds=0.2, max_seconds=1500), test_session())
    # Changes before the ranges are read; large values that no event holds; a row that moves to another range.
    pg.execute(database, "update notes set title = 'x' where id % 3 = 0; update notes set id = 1000 where id = 7")
    planned = connector.plan_incremental([NOTES, LINES])
    assert len(planned) > 4 and planned == connector.plan_incremental([NOTES, LINES]), "a plan is kept"
    told, done, began = list[IncrementalProgress](), list[RangeReport](), time.monotonic()
    reports = connector.incremental_snapshot(
        ["public.notes", "public.lines"], test_session(), on_progress=told.append, on_range=done.append
    )
    assert [each.range for each in reports] == planned and all(each.is_applied for each in reports)
    assert sorted(each.range.name for each in done) == sorted(each.name for each in planned)
    assert sum(each.rows for each in reports) == 800
    most = parallelism(test_session()) * (time.monotonic() - began)
    assert 0 < sum(each.seconds for each in reports) <= most, "of their reading, without waits"
    assert difference(file, [NOTES, LINES]) == []
    heard = [text for text in caplog.messages if text.startswith("Incremental Snapshot")]
    kinds = [text.split(":")[0].split()[-1] for text in heard]
    assert kinds[0] == "STARTED" and kinds[-3:] == ["TABLE_SCAN_COMPLETED", "TABLE_SCAN_COMPLETED", "COMPLETED"]
    assert set(kinds[1:-3]) == {"IN_PROGRESS"} and "total_rows_scanned=400, status=SUCCEEDED" in heard[-2]
    last = next(each for each in reversed(told) if each.table == NOTES)
    assert (last.ranges_read, last.ranges_applied, last.rows) == (last.ranges, last.ranges, 400)
    pg.drop_database(database)


def test_one_range_is_read_again_alone_and_what_cannot_be_read_is_refused_before(pg, tmp_path):
    database = pg.database("jobs")
    pg.execute(database, SCHEMA)
    file = connector_file(pg, database, tmp_path, **{"snapshot.mode": "initial"})
    connector, config = Connector.from_file(file), load(file)
    connector.initial_snapshot(spark=test_session())
    second = connector.plan_incremental([NOTES])[1]
    deltalake.DeltaTable(str(lake_path(config, NOTES))).update({"title": "'damaged'"})
    (report,) = connector.incremental_snapshot([second.name], test_session())
    assert report.is_applied and 0 < report.rows < 400
    (found,) = rows(lake_path(config, NOTES), "select count(*) as n from t where title = 'damaged'")
    assert found["n"] == 400 - report.rows
    for wanted in ("public.keyless", "public.nothing", "public.notes|0099", "notes|x"):
        with pytest.raises(TableError):
            connector.incremental_snapshot([second.name, wanted], test_session())
    pg.drop_database(database)


def test_two_jobs_of_one_table_beside_a_stream_are_exact(pg, program, tmp_path):
    database = pg.database("jobs")
    pg.execute(database, SCHEMA)
    file = connector_file(pg, database, tmp_path)
    assert program.stream(file).returncode == 0
    with program.started("run", file, "--max-seconds", "1500", own_java=True) as run:
        run.wait_for("streaming")
        pg.execute(database, "delete from notes where id % 5 = 0; update notes set id = id + 2000 where id % 7 = 0")
        session = test_session()
        with ThreadPoolExecutor(2) as pool:
            jobs = [pool.submit(Connector.from_file(file).incremental_snapshot, [str(NOTES)], session) for _ in "12"]
            assert all(each.is_applied for job in jobs for each in job.result(patient(500)))
        wait_until(lambda: not difference(file, [NOTES]), 120, "the lake table")
        assert run.end(2) == 0, run.said()[-3000:]
    assert Connector.from_file(file).status().incremental == ()
    job = program.run("snapshot", file, "--incremental", f"{NOTES}|0002", WAL2LAKE_FAILPOINT="after-staging")
    assert job.returncode == -signal.SIGKILL, job.stderr[-3000:]
    # What was read is seen in status, and is written by whoever streams next.
    status = program.run("status", file)
    assert (
        "incremental snapshot of public.notes" in status.stdout and "1 of 1 ranges read, 0 in the lake" in status.stdout
    )
    again = program.run("snapshot", file, "--incremental", f"{NOTES}|0001", str(LINES))
    assert again.returncode == 0 and "public.notes|0001 of " in again.stderr, again.stderr[-3000:]
    assert program.stream(file).returncode == 0
    assert difference(file, [NOTES, LINES]) == [] and Connector.from_file(file).status().incremental == ()
    pg.drop_database(database)


def test_chunks_have_the_rows_of_the_users_own_statement(pg, tmp_path):
    database = pg.database("jobs")
    pg.execute(database, SCHEMA)
    statement = "select body, upper(title) as title, id from notes where id % 3 = 0 order by id desc; -- a third"
    name = "snapshot.select.statement.overrides"
    file = connector_file(pg, database, tmp_path, **{name: str(NOTES), f"{name}.{NOTES}": statement})
    connector, config = Connector.from_file(file), load(file)
    connector.initial_snapshot(spark=test_session())
    reports = connector.incremental_snapshot([str(NOTES), str(LINES)], test_session())
    assert len(reports) > 4 and all(each.is_applied for each in reports)
    found = rows(lake_path(config, NOTES), "select id, title from t order by id")
    assert found == [{"id": number, "title": f"NOTE {number}"} for number in range(3, 401, 3)]
    assert difference(file, [LINES]) == []
    # A row that the statement excludes comes with its first change, and its key is another one then.
    pg.execute(
        database, "update notes set id = 1000, body = 'short' where id = 1; update notes set id = 1003 where id = 3"
    )
    connector.incremental_snapshot([str(NOTES)], test_session())
    kept = rows(lake_path(config, NOTES), "select id, title, length(body) as n from t where id >= 1000 order by id")
    assert kept == [{"id": 1000, "title": "note 1", "n": 5}, {"id": 1003, "title": "note 3", "n": 3200}]
    pg.drop_database(database)
