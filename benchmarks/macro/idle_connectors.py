"""What an idle connector costs in a process of several: memory and CPU of all processes of ``wal2lake run``.

    python -m benchmarks.macro.idle_connectors [--connectors 1,2,4] [--seconds 60] [--rest 85]

Each connector has a database with one table of 1,000 rows, which is read, and one change, which is merged. Then nothing
changes for ``--rest`` seconds, in which Spark ends the workers that have nothing to do, and ``--seconds`` are measured.
Exit code 1 if a further connector costs more than 150 MB or 0.02 cores.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.freshness.processes import descendants, processes, pss_bytes
from benchmarks.server import bench_server
from cdc_core.config import load
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import lake_path, rows, write_properties
from tests.support.waits import wait_until

_PROGRAM = Path(sys.executable).parent / "wal2lake"
_TABLE = TableId("public", "t")
_MOST_MB, _MOST_CORES = 150.0, 0.02


def measure(server: Cluster, folder: Path, connectors: int, seconds: float, rest: float) -> tuple[float, float, float]:
    """Return the resident and the proportional megabytes of all processes, and the cores that they use."""
    folder.mkdir()
    files = [_connector(server, folder, f"c{connectors}_{number}") for number in range(connectors)]
    with (folder / "log").open("wb") as log:
        run = subprocess.Popen([str(_PROGRAM), "run", *map(str, files)], stdout=log, stderr=log)
        try:
            for file in files:
                _follow(server, file)
            time.sleep(rest)
            before, began = _cpu(run.pid), time.monotonic()
            time.sleep(seconds)
            after, took = _cpu(run.pid), time.monotonic() - began
            used = sum(cpu - before.get(pid, 0.0) for pid, cpu in after.items())
            return sum(map(_rss_mb, after)), sum(map(pss_bytes, after)) / 1024**2, used / took
        finally:
            run.send_signal(signal.SIGTERM)
            run.wait(120)


def _connector(server: Cluster, folder: Path, name: str) -> Path:
    database = server.database(name)
    server.execute(database, "create table t (id int primary key, n int)")
    server.execute(database, "insert into t select g, 0 from generate_series(1, 1000) g")
    settings = {"wal2lake.lake.path": folder / "lake", "wal2lake.state.path": folder / "state"}
    return write_properties(
        folder / f"{name}.properties", server.properties(database, **settings, **{"topic.prefix": name})
    )


def _follow(server: Cluster, file: Path) -> None:
    """Wait until a change has been merged."""
    config = load(file)
    path = lake_path(config, _TABLE)
    wait_until(lambda: rows(path, "select id from t where id = 1"), 300, "the snapshot", 0.5)
    server.execute(config.postgres.database_dbname, "update t set n = 1 where id = 1")
    wait_until(lambda: rows(path, "select id from t where n = 1"), 300, "the change", 0.5)


def _cpu(root: int) -> dict[int, float]:
    everybody = processes()
    return {pid: everybody[pid].cpu for pid in descendants(root, everybody)}


def _rss_mb(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # ended meanwhile
    return next((int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("VmRSS:")), 0.0)


def main() -> int:
    """Measure, and print a row of a table for each number of connectors."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--connectors", default="1,2,4")
    asked.add_argument("--seconds", type=float, default=60.0)
    asked.add_argument("--rest", type=float, default=85.0)
    arguments = asked.parse_args()
    counts = [int(text) for text in arguments.connectors.split(",")]
    print("| connectors | resident, MB | proportional, MB | cores |\n|---|---|---|---|")
    with bench_server() as (server, folder):
        made = {}
        for count in counts:
            made[count] = measure(server, folder / str(count), count, arguments.seconds, arguments.rest)
            resident, proportional, cores = made[count]
            print(f"| {count} | {resident:,.0f} | {proportional:,.0f} | {cores:.4f} |", flush=True)
    more = counts[-1] - counts[0]
    if not more:
        return 0
    memory, cores = ((made[counts[-1]][at] - made[counts[0]][at]) / more for at in (0, 2))
    print(f"\nA further connector: {memory:.0f} MB, {cores:.4f} cores.")
    return int(memory > _MOST_MB or cores > _MOST_CORES)


if __name__ == "__main__":
    sys.exit(main())
