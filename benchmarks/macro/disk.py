"""What a lake takes on disk while small tables change all the time, by folder and kind of file.

    python -m benchmarks.macro.disk [--minutes 10] [--rate 25] [--rows 1000,3000,5000,10000,30000] [--set NAME=VALUE]

``wal2lake run`` as a user starts it follows a table for each of the ``rows`` while another thread commits single-row
updates at random keys. Each minute and at the end one line for each Delta table: megabytes and files of live data, of
replaced data, of deletion vectors, of log entries and of checkpoints. A table's total, its changelog included, is
compared with 5 times the live data and 10 MB. CPU seconds are those of the run's processes, for each minute.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import psycopg
from deltalake import DeltaTable

from benchmarks.freshness.processes import DRIVER, JVM, WORKERS, Sampler
from benchmarks.freshness.product import Site, made_site, running
from benchmarks.server import bench_server

KINDS = ("live", "replaced", "vectors", "entries", "checkpoints")
_UPDATE = "update {} set amount = amount + 0.01, changed_at = clock_timestamp(), quantity = quantity + 1 where id = %s"
_OTHERS = "name, amount, changed_at, active, attributes, quantity, note"
Sizes = dict[str, dict[str, list[int]]]


def sizes(lake: Path) -> Sizes:
    """Files and bytes of each Delta table under a folder, by kind."""
    found: Sizes = {}
    for log in sorted(lake.rglob("_delta_log")):
        table, kinds = log.parent, defaultdict[str, list[int]](lambda: [0, 0])
        try:
            live = set(DeltaTable(str(table)).file_uris())
        except Exception:  # made or cleaned at this moment
            continue
        for path in table.rglob("*"):
            try:
                octets = path.stat().st_size if path.is_file() else -1
            except FileNotFoundError:
                continue
            if octets >= 0:
                kind = _kind(path, live)
                kinds[kind][0] += 1
                kinds[kind][1] += octets
        found[str(table.relative_to(lake))] = kinds
    return found


def _kind(path: Path, live: set[str]) -> str:
    if path.parent.name == "_delta_log":
        return "entries" if path.suffix == ".json" else "checkpoints"
    if path.suffix != ".parquet":
        return "vectors"
    return "live" if str(path) in live else "replaced"


def lines(found: Sizes, tables: Sequence[str]) -> list[str]:
    """A table of the sizes, with the sum of each lake table and its changelog."""
    out = ["| table | " + " | ".join(KINDS) + " | MB |", "|---" * (len(KINDS) + 2) + "|"]
    for name, kinds in found.items():
        cells = " | ".join(f"{kinds[kind][1] / 1e6:.2f} ({kinds[kind][0]})" for kind in KINDS)
        out.append(f"| {name} | {cells} | {sum(octets for _, octets in kinds.values()) / 1e6:.2f} |")
    total = live = 0
    for table in tables:
        last = table.partition(".")[2]
        parts = [kinds for name, kinds in found.items() if Path(name).name == last]
        took = sum(octets for kinds in parts for _, octets in kinds.values())
        lives = sum(kinds["live"][1] for kinds in parts)
        goal = 5 * lives + 10e6
        total, live = total + took, live + lives
        out.append(f"{table}: {took / 1e6:.1f} MB of which {lives / 1e6:.2f} live; goal {goal / 1e6:.1f}")
    every = sum(octets for kinds in found.values() for _, octets in kinds.values())
    files = sum(count for kinds in found.values() for count, _ in kinds.values())
    times = total / max(1, live)
    out.append(f"tables {total / 1e6:.1f} MB, {times:.0f} × live; the lake {every / 1e6:.1f} MB in {files:,} files")
    return out


def load(site: Site, rows: Sequence[int], rate: float, stop: threading.Event) -> None:
    """Commit single-row updates at random keys of random tables until ``stop``."""
    draw, due = random.Random(1), time.monotonic()
    with psycopg.connect(site.conninfo, autocommit=True) as connection:
        while not stop.is_set():
            at = draw.randrange(len(rows))
            connection.execute(_UPDATE.format(site.tables[at]), [draw.randint(1, rows[at])], prepare=True)
            due += 1 / rate
            stop.wait(max(0.0, due - time.monotonic()))


def main() -> None:
    """Print the sizes each minute."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--rate", type=float, default=25)
    parser.add_argument("--rows", default="1000,3000,5000,10000,30000")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="connector property")
    asked = parser.parse_args()
    rows = [int(each) for each in asked.rows.split(",")]
    extra = dict(each.split("=", 1) for each in asked.set)
    with bench_server() as (cluster, folder), made_site(cluster, folder, "disk", len(rows), min(rows), **extra) as site:
        for table, count in zip(site.tables, rows, strict=True):
            fewest = min(rows)
            series = f"generate_series({fewest}, {count}, {fewest}) g where id + g <= {count}"
            cluster.execute(site.database, f"insert into {table} select id + g, {_OTHERS} from {table}, {series}")
        stop = threading.Event()
        thread = threading.Thread(target=load, args=(site, rows, asked.rate, stop))
        with Sampler() as sampler, running(site.config) as product:
            sampler.watch(product.pid, DRIVER)
            thread.start()
            try:
                began = time.time()
                for minute in range(1, asked.minutes + 1):
                    while time.time() < began + 60 * minute:
                        product.require_running()
                        time.sleep(0.5)
                    used = sampler.cpu(began + 60 * (minute - 1), began + 60 * minute)
                    cpu = ", ".join(f"{kind} {used.get(kind, 0):.1f}" for kind in (DRIVER, JVM, WORKERS))
                    print(f"--- {minute} min; CPU seconds: {cpu}", flush=True)
                    print("\n".join(lines(sizes(site.lake), site.tables)), flush=True)
            finally:
                stop.set()
                thread.join()


if __name__ == "__main__":
    main()
