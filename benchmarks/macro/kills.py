"""Random changes of large tables while the run is killed again and again and maintenance goes on; then a comparison.

    python -m benchmarks.macro.kills                                    # two tables of 2 M rows, ten minutes
    python -m benchmarks.macro.kills --rows 100000 --seconds 60         # smaller

``wal2lake run`` is killed (SIGKILL, the run's process) after random times and started again; ``wal2lake maintain`` is
started whenever the last one has ended. Afterwards each lake table must equal its source, and each change be in its
changelog once; the exit code is 1 if not.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.freshness.bench import say
from benchmarks.freshness.equality import require_equal
from benchmarks.freshness.load import LoadSpec, read_changes
from benchmarks.freshness.log_tail import LogTail
from benchmarks.freshness.product import PROGRAM, Product, Site, made_site
from benchmarks.server import bench_server
from cdc_core.schema.table import TableId
from tests.support.lake import doubled_events

_ROOT = Path(__file__).parents[2]
_DRAIN_SECONDS = 600


class Maintenance(threading.Thread):
    """Runs ``wal2lake maintain`` again and again until ``stop``; counts the runs and those that failed."""

    def __init__(self, site: Site) -> None:
        super().__init__(name="maintenance", daemon=True)
        self._site, self._end = site, threading.Event()
        self.runs = self.failed = 0

    def run(self) -> None:
        """Maintain, rest, repeat."""
        while not self._end.wait(5):
            with self._site.config.with_suffix(".maintain.log").open("ab") as log:
                done = subprocess.run(
                    [str(PROGRAM), "maintain", str(self._site.config)], stdout=log, stderr=log, check=False, timeout=600
                )
            self.runs += 1
            self.failed += done.returncode != 0

    def stop(self) -> None:
        """Wait until the last one has ended."""
        self._end.set()
        self.join(600)


def killed(product: Product) -> None:
    """Kill the run's process; its Java process ends by itself when it notices."""
    os.kill(product.pid, signal.SIGKILL)
    product.stop()


def measure(site: Site, rows: int, rate: float, seconds: float, seed: int) -> dict[str, Any]:
    """Load, kill, maintain; returns what was done. Raises MeasureError if the lake differs."""
    chance = random.Random(seed)
    spec = LoadSpec(site.conninfo, list(site.tables), rows, rate, seconds, str(site.folder / "load.csv"), seed=seed)
    product, kills = Product(site.config), 0
    maintenance = Maintenance(site)
    try:
        with LogTail(site.lake, site.slot, site.tables) as tail:
            _first_commits(site, product)
            maintenance.start()
            load = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.freshness.load", str(spec.write(site.folder / "load.json"))],
                cwd=_ROOT,
            )
            while load.poll() is None:
                end = time.monotonic() + chance.uniform(10, 40)
                while load.poll() is None and time.monotonic() < end:
                    time.sleep(0.2)
                killed(product)
                kills += 1
                say(f"killed {kills} times")
                product = Product(site.config)
            changes = read_changes(Path(spec.output))
            lsns = {int(table): int(lsn) for table, lsn in zip(changes.table, changes.lsn, strict=True)}
            if load.returncode or not tail.wait(lsns, _DRAIN_SECONDS):
                raise RuntimeError(
                    f"the load ended with {load.returncode}, or the lake did not follow: {product.said()}"
                )
    finally:
        maintenance.stop()
        product.stop()
    compared = require_equal(site)
    doubled = {name: doubled_events(site.config, TableId(*name.split(".", 1))) for name in site.tables}
    return {
        "changes": int(changes.count.sum()),
        "kills": kills,
        "maintained": maintenance.runs,
        "maintenance failed": maintenance.failed,
        "rows compared": compared,
        "doubled events": doubled,
    }


def _first_commits(site: Site, product: Product) -> None:
    end = time.monotonic() + 900
    while not all(list((folder / "_delta_log").glob("*1.json")) for folder in site.table_folders()):
        product.require_running()
        if time.monotonic() > end:
            raise RuntimeError("the tables were not in the lake in time")
        time.sleep(0.5)


def main() -> int:
    """Measure and print."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--tables", type=int, default=2)
    asked.add_argument("--rows", type=int, default=2_000_000)
    asked.add_argument("--rate", type=float, default=1_000)
    asked.add_argument("--seconds", type=float, default=600)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="connector property")
    given = asked.parse_args()
    extra = dict(each.split("=", 1) for each in given.set)
    with (
        bench_server() as (cluster, folder),
        made_site(cluster, folder, "kills", given.tables, given.rows, **extra) as site,
    ):
        found = measure(site, given.rows, given.rate, given.seconds, given.seed)
    for name, value in found.items():
        print(f"{name}: {value}")
    return int(any(found["doubled events"].values()) or bool(found["maintenance failed"]))


if __name__ == "__main__":
    sys.exit(main())
