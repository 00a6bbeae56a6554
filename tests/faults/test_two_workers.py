"""A Spark standalone cluster of two workers: a task's process, then a whole worker is killed, and the run goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, doubled_events, lake_path, lake_settings, rows, write_properties
from tests.support.program import Program
from tests.support.spark_cluster import SparkCluster
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

NAMES = [TableId("public", f"t{number}") for number in range(4)]


def test_a_run_survives_the_loss_of_a_task_and_of_a_worker(pg: Cluster, program: Program, tmp_path: Path) -> None:
    database = pg.database("two_workers")
    for name in NAMES:
        pg.execute(database, f"create table {name.table} (id int primary key, n int)")
        pg.execute(database, f"insert into {name.table} select g, 0 from generate_series(1, 2000) g")
    with SparkCluster(tmp_path / "cluster") as cluster:
        more = {
            **lake_settings(tmp_path),
            **cluster.settings,
            "schema.include.list": "public",
            "wal2lake.spark.spark.speculation": "true",
            # The updates of a table are divided among the tasks of both workers, its other changes are not.
            "wal2lake.merge.part.max.bytes": "10000",
        }
        file = write_properties(tmp_path / "c.properties", pg.properties(database, **more))

        paths = [lake_path(load(file), name) for name in NAMES]

        def change(number: int) -> None:
            for name in NAMES:
                pg.execute(
                    database,
                    f"update {name.table} set n = {number} where id % 7 = {number % 7}; "
                    f"insert into {name.table} values ({10_000 + number}, 0) on conflict do nothing; "
                    f"delete from {name.table} where id = {number}",
                )

        def at_work() -> list[list[int]] | None:
            """The processes of both workers' tasks; one worker alone may have done a round of small tables."""
            found = [cluster.python_of(number) for number in (0, 1)]
            if not all(found):
                change(1)
                return None
            return found

        def shown(number: int, what: str) -> None:
            # First a row of the last change: to compare all tables again and again costs as much as the rounds do.
            row = f"select id from t where id = {10_000 + number}"
            wait_until(lambda: all(rows(path, row) for path in paths), 120, f"a row of {what}", 0.3)
            wait_until(lambda: difference(file, NAMES) == [], 120, what, 1)

        with program.started("run", file, "--max-seconds", "1500", cold=True) as run:
            run.wait_for("streaming", 180)
            change(1)
            shown(1, "the first changes")
            both = wait_until(at_work, 120, "tasks on both workers", 0.5)
            os.kill(both[1][0], signal.SIGKILL)
            change(2)
            shown(2, "changes after a task's process was killed")
            for number in (3, 4):
                change(number)
            cluster.kill_worker(0)
            change(5)
            shown(5, "changes after a worker was killed")
            cluster.add_worker()
            change(6)
            wait_until(lambda: cluster.python_of(2) or change(6), 120, "tasks on the new worker", 0.5)
            shown(6, "changes beside the new worker")
            assert run.end(signal.SIGINT) == 0, run.said()[-3000:]
            assert "Traceback" not in run.said(), run.said()[-3000:]
    assert [doubled_events(file, name) for name in NAMES] == [0, 0, 0, 0]
    pg.drop_database(database)
