"""Jobs that read ranges, killed at each durable step amid writers, as is the stream that writes what they staged."""

from __future__ import annotations

import random
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltalake
import pytest

from cdc_core import failpoints
from cdc_core.assemble import Connector
from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.faults.test_snapshots_under_load import DOCS, PAIRS, SCHEMA, Load
from tests.support import sampling
from tests.support.cluster import Cluster
from tests.support.lake import difference, lake_path, rows, write_properties
from tests.support.program import Program
from tests.support.waits import patient

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

GONE = TableId("public", "gone")
JOB = [failpoints.BEFORE_STAGING, f"{failpoints.AFTER_STAGING}:2"]
STREAM = [
    failpoints.BEFORE_CHUNK_APPLY,
    failpoints.DURING_CHUNK_APPLY,
    failpoints.AFTER_CHUNK_APPLY,
    failpoints.BEFORE_UNSTAGING,
]
STEPS = {step.partition(":")[0] for step in (*JOB, *STREAM)}


def job(program: Program, file: Path, *ranges: str, own_java: bool = False, failpoint: str = "") -> str:
    """Run a job; killed at ``failpoint``, else it must end well."""
    armed = {"WAL2LAKE_FAILPOINT": failpoint} if failpoint else {}
    done = program.run("snapshot", file, "--incremental", *ranges, own_java=own_java, **armed)
    expected = -signal.SIGKILL if failpoint else 0
    assert done.returncode == expected, f"{failpoint}: {done.stdout}{done.stderr[-3000:]}"
    return done.stderr


def staged(file: Path) -> int:
    config = load(file)
    path = Path(config.lake.lake_path) / config.schema.topic_prefix / "__staged"
    (found,) = rows(path, "select count(*) as n from t where facts is not null") if path.exists() else [{"n": 0}]
    return int(found["n"])


def test_killed_at_every_step_of_job_and_stream_the_lake_is_the_source(
    pg: Cluster, program: Program, tmp_path: Path
) -> None:
    seed = sampling.seed(5201)
    print(f"seed {seed}")
    chance, database = random.Random(seed), pg.database("jobs")
    pg.execute(
        database,
        f"{SCHEMA} create table gone (id int primary key); insert into gone select generate_series(1, 50); analyze",
    )
    rules = {
        "table.include.list": "public.docs,public.pairs,public.gone",
        "incremental.snapshot.chunk.size": str(chance.choice((15, 40, 100))),
        "wal2lake.lake.path": str(tmp_path / "lake"),
        "wal2lake.state.path": str(tmp_path / "state"),
        "wal2lake.snapshot.rows.per.partition": "300",
        "wal2lake.snapshot.threads": "2",
    }
    file = write_properties(tmp_path / "jobs.properties", pg.properties(database, **rules))
    config = load(file)
    assert program.stream(file).returncode == 0
    # Values alone: a table in which a change finds no row is read again as a whole.
    for table, some in ((DOCS, "id % 3 = 0"), (PAIRS, "a % 3 = 0")):
        deltalake.DeltaTable(str(lake_path(config, table))).update({"body": "'damaged'"}, predicate=some)
    # Before the writers, some of which truncate: the plan is kept.
    assert len(Connector.from_file(file).plan_incremental([DOCS, PAIRS])) == 10
    with Load(pg, database, seed).at_work() as writers:
        for step in JOB:
            job(program, file, str(DOCS), failpoint=step)
        assert staged(file) >= 1
        for step in STREAM:
            program.killed_at(step, file)
        # What is staged when its table is altered, or dropped, and nobody streams.
        job(program, file, str(DOCS), str(GONE), failpoint=f"{failpoints.AFTER_STAGING}:6")
        pg.execute(database, "alter table docs add column more int default 7; drop table gone")
        assert writers.done > 100
        done = program.stream(file)
        assert done.returncode == 0 and staged(file) == 0, done.stderr[-3000:]
        assert "was altered after it was read" in done.stderr, done.stderr[-3000:]
        # Two jobs of one table at once, without a stream: one of them streams, and the other waits for it.
        with ThreadPoolExecutor(2) as pool:
            jobs = [pool.submit(job, program, file, str(DOCS), str(PAIRS), own_java=own) for own in (False, True)]
            assert all("rows in the lake table" in each.result(patient(540)) for each in jobs)
    assert program.stream(file).returncode == 0
    assert difference(file, [DOCS, PAIRS]) == [], f"seed {seed}, {writers.done} changes"
    pg.drop_database(database)
