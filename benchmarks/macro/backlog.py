"""A backlog of random updates of one large table, merged with one executor core and with two.

    python -m benchmarks.macro.backlog [--rows 3000000] [--updates 1000000] [--cores 1 2] [--code FOLDER ...]

Each combination of code and cores has a connector with a slot and a lake of its own. All lakes are filled by a
snapshot, the updates are committed while no run is up, and each connector reads them until its lake has them; then the
lake is compared with the source. ``--code`` names other checkouts that are measured beside this one. The seconds and
the CPU seconds of a run without changes, measured before, are subtracted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.freshness.processes import DRIVER, JVM, OTHERS, PRODUCT, WORKERS, Sampler
from benchmarks.macro.measured import Peaks
from benchmarks.server import bench_server
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, lake_settings, write_properties

_TABLE = TableId("public", "big")
_HERE = Path(__file__).parents[2]
_IDLE = ("--until-idle", "2")
_SECONDS = 3_600
_PER_TRANSACTION = 1_000
_COLUMNS = "id bigint primary key, n int, a text, b numeric(12,2), at timestamptz, c text"


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds, CPU seconds of the program's processes, megabytes of the largest worker, cores used by others."""

    seconds: float
    cpu: float
    worker_mb: float
    others: float


@dataclass(frozen=True, slots=True)
class Variant:
    """A connector that runs the code of a folder on a number of cores."""

    code: Path
    cores: int
    file: Path

    def run(self, cluster: Cluster) -> Cost:
        """Run until the source is idle. Raises SystemExit unless it succeeds."""
        program = [sys.executable, "-m", "cdc_core", "run", str(self.file), *_IDLE]
        began, started = time.time(), time.monotonic()
        with Sampler(interval=0.5, memory_interval=_SECONDS) as sampler:
            process = subprocess.Popen(program, env={**os.environ, "PYTHONPATH": str(self.code)}, cwd=self.code)
            sampler.watch(process.pid, DRIVER)
            peaks = Peaks(process.pid)
            with peaks.watched():
                code = process.wait(_SECONDS)
            seconds = time.monotonic() - started
            used = sampler.cpu(began, time.time())
        if code:
            raise SystemExit(f"wal2lake run ended with {code}")
        cpu = sum(used.get(kind, 0.0) for kind in PRODUCT)
        detail = {kind: round(used.get(kind, 0.0), 1) for kind in (DRIVER, JVM, WORKERS)}
        print(self.code.name, self.cores, f"{seconds:.1f} s", detail, file=sys.stderr, flush=True)
        return Cost(seconds, cpu, peaks.peak[WORKERS], used.get(OTHERS, 0.0) / seconds)


def variants(cluster: Cluster, database: str, folder: Path, codes: list[Path], cores: list[int]) -> list[Variant]:
    """A connector for each combination."""
    found = []
    for number, code in enumerate(codes):
        for count in cores:
            name = f"v{number}_{count}"
            place = folder / name
            place.mkdir()
            settings = {
                "slot.name": f"{database}_{name}",
                "schema.include.list": "public",
                "wal2lake.spark.spark.master": f"local[{count}]",
                **lake_settings(place),
            }
            file = write_properties(place / "c.properties", cluster.properties(database, **settings))
            found.append(Variant(code, count, file))
    return found


def updated(cluster: Cluster, database: str, rows: int, updates: int) -> None:
    """Commit random updates, in transactions of 1,000."""
    for _ in range(updates // _PER_TRANSACTION):
        statement = (
            f"update big set n = n + 1, a = md5(random()::text) where id in "
            f"(select 1 + floor(random() * {rows})::bigint from generate_series(1, {_PER_TRANSACTION}))"
        )
        cluster.execute(database, statement)


def main() -> None:
    """Measure, and print a row of a table for each connector."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rows", type=int, default=3_000_000)
    asked.add_argument("--updates", type=int, default=1_000_000)
    asked.add_argument("--times", type=int, default=1)
    asked.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    asked.add_argument("--code", type=Path, nargs="*", default=[])
    given = asked.parse_args()
    with bench_server() as (cluster, folder):
        database = cluster.database("backlog")
        cluster.execute(database, f"create table big ({_COLUMNS})")
        cluster.execute(
            database,
            f"insert into big select g, 0, md5(g::text), g, now(), repeat(md5(g::text), 2) "
            f"from generate_series(1, {given.rows}) g",
        )
        every = variants(cluster, database, folder, [*given.code, _HERE], given.cores)
        for each in every:
            each.run(cluster)
        nothing = {each: each.run(cluster) for each in every}
        print("| code | cores | s | CPU s | worker, MB | others |\n|---|---|---|---|---|---|", flush=True)
        for _ in range(given.times):
            updated(cluster, database, given.rows, given.updates)
            for each in every:
                found, empty = each.run(cluster), nothing[each]
                figures = f"{found.seconds - empty.seconds:.1f} | {found.cpu - empty.cpu:.1f} | {found.worker_mb:.0f}"
                print(f"| {each.code.name} | {each.cores} | {figures} | {found.others:.1f} |", flush=True)
        for each in every:
            if difference(each.file, [_TABLE]):
                raise SystemExit(f"{each.file}: the lake differs from the source")


if __name__ == "__main__":
    main()
