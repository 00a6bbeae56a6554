"""One connector on a Spark standalone cluster of one worker, and of two: a snapshot, and a backlog of changes.

    python -m benchmarks.macro.workers [--tables 8] [--rows 250000] [--changes 20000]

Each worker has one core. Each cluster has a source and a lake of its own: ``--tables`` tables of ``--rows`` rows are
read, then each gets ``--changes`` updates, and the stream brings the lake to the source. Seconds do not include the
start of Java and of the executors' Python. Every table is compared at the end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.server import bench_server
from cdc_core.assemble import Connector
from cdc_core.engine.reports import Until
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from cdc_core.spark.tasks import run_tasks
from tests.support.cluster import Cluster
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.spark_cluster import SparkCluster

_SECONDS = 1800
_COLUMNS = "id int primary key, n int, a text, b numeric(12,2), at timestamptz default now()"


def measure(server: Cluster, folder: Path, workers: int, tables: int, rows: int, changes: int) -> tuple[float, float]:
    """Return rows/s of the snapshot and changes/s of the stream. Raises RuntimeError if the lake differs."""
    database = server.database(f"workers_{workers}")
    names = [TableId("public", f"t{number}") for number in range(tables)]
    for name in names:
        server.execute(database, f"create table {name.table} ({_COLUMNS})")
        given = f"select g, 0, md5(g::text), g, now() from generate_series(1, {rows}) g"
        server.execute(database, f"insert into {name.table} {given}")
    folder.mkdir()
    with SparkCluster(folder / "cluster", workers, jvm="") as cluster:
        settings = {"schema.include.list": "public", **lake_settings(folder), **cluster.settings}
        file = write_properties(folder / "workers.properties", server.properties(database, **settings))
        taken = _timed(file, "snapshot")
        for name in names:
            server.execute(database, f"update {name.table} set n = n + 1 where id <= {changes}")
        drained = _timed(file, str(server.execute(database, "select pg_current_wal_insert_lsn()")[0][0]))
        differing = difference(file, names)
    if differing:
        raise RuntimeError(f"the lake differs: {differing[0]}")
    return tables * rows / taken, tables * changes / drained


def _timed(file: Path, what: str) -> float:
    order = [sys.executable, "-m", "benchmarks.macro.workers", "--file", str(file), "--do", what]
    done = subprocess.run(order, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{what} ended with {done.returncode}: {done.stderr[-3000:]}")
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def _do(file: Path, what: str) -> float:
    """In a process of its own: take the snapshot, or stream up to an LSN; returns the seconds."""
    connector = Connector.from_file(file)
    spark = connector.spark()
    run_tasks(spark, [[number] for number in range(8)], _imported, "warming up")
    begun = time.monotonic()
    if what == "snapshot":
        connector.initial_snapshot(spark)
    else:
        connector.stream(Until(lsn=Lsn.parse(what)), spark)
    return time.monotonic() - begun


def _imported(number: int) -> int:
    import cdc_core.lake.slice.task  # noqa: F401

    time.sleep(0.5)  # so that no executor takes all of them
    return number


def main() -> None:
    """Measure, and print a row of a table for each number of workers."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, usual in (("tables", 8), ("rows", 250_000), ("changes", 20_000)):
        asked.add_argument(f"--{name}", type=int, default=usual)
    asked.add_argument("--file", type=Path)
    asked.add_argument("--do")
    given = asked.parse_args()
    if given.file is not None:
        print(json.dumps({"seconds": _do(given.file, given.do)}))
        return
    print(f"{given.tables} tables of {given.rows:,} rows, {given.changes:,} updates of each\n")
    print("| workers | snapshot, rows/s | stream, changes/s |\n|---|---|---|")
    with bench_server() as (server, folder):
        for workers in (1, 2):
            taken, drained = measure(server, folder / str(workers), workers, given.tables, given.rows, given.changes)
            print(f"| {workers} | {taken:,.0f} | {drained:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
