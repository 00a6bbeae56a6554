"""One transaction of millions of rows, three times: inserts, an update of every row, a delete of half; time and memory.

    python -m benchmarks.macro.large_transaction             # 2.3 M rows of 1 kB
    python -m benchmarks.macro.large_transaction --quick     # small: proves that it runs

Each transaction is read by ``wal2lake run`` with its defaults, as a user runs it, until the lake has it; then the lake
is compared with the source. Beside it the same WAL is read by pg_recvlogical through a copy of the slot. Memory is the
peak of each process (VmHWM): of the driver, of Java, and of the largest of the Python workers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.freshness.processes import DRIVER, JVM, WORKERS, kinds, processes
from benchmarks.macro.stream import drop_slot
from benchmarks.server import bench_server
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, write_properties

_SECONDS = 3_600
_SAMPLE_SECONDS = 0.1
_TABLE = TableId("public", "big")
_PROGRAM = Path(sys.executable).parent / "wal2lake"


@dataclass(frozen=True, slots=True)
class Figures:
    """One transaction. Memory in megabytes."""

    name: str
    rows: int
    seconds: float
    recvlogical_seconds: float
    driver_mb: float
    java_mb: float
    worker_mb: float


def transactions(rows: int) -> list[tuple[str, int, str]]:
    """Name, number of changed rows and SQL."""
    return [
        ("insert", rows, f"insert into big select g, repeat(md5(g::text), 32) from generate_series(1, {rows}) g"),
        ("update of every row", rows, "update big set v = repeat(md5(v), 32)"),
        ("delete of half", rows // 2, "delete from big where id % 2 = 0"),
    ]


class Peaks:
    """The largest peak of a process of each kind below ``root``, in megabytes."""

    def __init__(self, root: int) -> None:
        self._root = root
        self.peak = {DRIVER: 0.0, JVM: 0.0, WORKERS: 0.0}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Sample until the end of the block."""
        stop = threading.Event()
        thread = threading.Thread(target=self._watch, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(10)

    def _watch(self, stop: threading.Event) -> None:
        while not stop.wait(_SAMPLE_SECONDS):
            for pid, kind in kinds(self._root, DRIVER, processes()).items():
                if kind in self.peak:
                    self.peak[kind] = max(self.peak[kind], _peak_mb(pid))


def _peak_mb(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # ended meanwhile
    return next((int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("VmHWM:")), 0.0)


def measure(cluster: Cluster, folder: Path, rows: int, extra: dict[str, str]) -> list[Figures]:
    """Run the three transactions one after another."""
    database = cluster.database("large")
    cluster.execute(database, "create table big (id bigint primary key, v text)")
    settings = cluster.properties(
        database,
        **{
            "schema.include.list": "public",
            "wal2lake.lake.path": str(folder / "lake"),
            "wal2lake.state.path": str(folder / "state"),
            **extra,
        },
    )
    file = write_properties(folder / "large.properties", settings)
    _run(file)
    found = []
    for name, count, statement in transactions(rows):
        cluster.execute(database, "select pg_copy_logical_replication_slot(%s, 'reference')", [settings["slot.name"]])
        cluster.execute(database, statement)
        end = cluster.execute(database, "select pg_current_wal_insert_lsn()")[0][0]
        reference = _recvlogical(cluster, database, end, settings["publication.name"])
        drop_slot(cluster, database, "reference")
        seconds, peaks = _run(file)
        if difference(file, [_TABLE]):
            raise SystemExit(f"{name}: the lake differs from the source")
        found.append(Figures(name, count, seconds, reference, peaks[DRIVER], peaks[JVM], peaks[WORKERS]))
        print(found[-1], file=sys.stderr, flush=True)
    return found


def _run(file: Path) -> tuple[float, dict[str, float]]:
    started = time.monotonic()
    process = subprocess.Popen([str(_PROGRAM), "run", str(file), "--until-idle", "2"])
    peaks = Peaks(process.pid)
    with peaks.watched():
        code = process.wait(_SECONDS)
    if code:
        raise SystemExit(f"wal2lake run ended with {code}")
    return time.monotonic() - started, peaks.peak


def _recvlogical(cluster: Cluster, database: str, end: str, publication: str) -> float:
    started = time.monotonic()
    subprocess.run(
        [
            str(cluster.bin / "pg_recvlogical"),
            *("-h", cluster.host, "-p", str(cluster.port), "-U", cluster.user, "-d", database),
            *("--slot", "reference", "--start", "-F", "0", "-f", "/dev/null", "--no-loop", "--endpos", end),
            *("-o", "proto_version=1", "-o", f"publication_names={publication}"),
        ],
        check=True,
        timeout=_SECONDS,
        env={**os.environ, "PGPASSWORD": cluster.password},
        capture_output=True,
    )
    return time.monotonic() - started


def main() -> None:
    """Measure and print a table; write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small: proves that it runs, measures nothing")
    parser.add_argument("--rows", type=int, default=2_300_000)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a connector property")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    rows = 60_000 if arguments.quick else arguments.rows
    extra: dict[str, str] = {"wal2lake.merge.part.max.bytes": str(4 << 20)} if arguments.quick else {}
    extra |= dict(pair.split("=", 1) for pair in arguments.set)
    with bench_server() as (cluster, folder):
        found = measure(cluster, folder, rows, extra)
    _print(found)
    if arguments.json:
        figures: dict[str, Any] = {"transactions": [asdict(one) for one in found], "cores": os.cpu_count()}
        arguments.json.write_text(json.dumps(figures, indent=1))


def _print(found: list[Figures]) -> None:
    print("One transaction each, rows of 1 kB; seconds are those of `wal2lake run`, start and end included.")
    print("| transaction | rows | seconds | × pg_recvlogical | driver MB | Java MB | largest worker MB |")
    print("|---|---|---|---|---|---|---|")
    for one in found:
        print(
            f"| {one.name} | {one.rows:,} | {one.seconds:.0f} | {one.seconds / one.recvlogical_seconds:.1f} "
            f"| {one.driver_mb:,.0f} | {one.java_mb:,.0f} | {one.worker_mb:,.0f} |"
        )


if __name__ == "__main__":
    main()
