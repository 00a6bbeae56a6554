"""Tables → lake, beside ``COPY … TO STDOUT`` of the same table into /dev/null in one run.

    python -m benchmarks.macro.snapshot                      # 10 M rows × 10 columns; 100 tables of 10,000 rows
    python -m benchmarks.macro.snapshot --rows 1000000 --only large
    python -m benchmarks.macro.snapshot --only large,peer    # beside Debezium's engine too
    python -m benchmarks.macro.snapshot --only rules         # with the rules beside without

Each turn takes COPY (psql, over TCP), a warm snapshot (Spark and its workers are there), and a cold one (``wal2lake
snapshot`` from the command line, less the same command on an empty table), so that a machine that drifts drifts for
all; a ratio is formed within its turn. A warm-up turn is not counted. The lake is removed before each.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.freshness.processes import DRIVER, PRODUCT, Sampler
from benchmarks.macro import peer
from benchmarks.server import bench_server
from cdc_core.assemble import Connector
from tests.support.cluster import Cluster
from tests.support.lake import write_properties

PROGRAM = Path(sys.executable).parent / "wal2lake"
PEER_FOLDER = Path(".wal2lake") / "peer"
_SECONDS = 3600
_FILL_ROWS = 100_000
_RULES = {
    "wal2lake.quality.rule.paid": "public.load: after.amount >= 0",
    "wal2lake.quality.rule.coded": "public.load: after.code like 'code-%'",
}


class Bench:
    """A server, a folder, and the programs measured against them."""

    def __init__(self, cluster: Cluster, folder: Path, extra: dict[str, str]) -> None:
        self.cluster = cluster
        self.folder = folder
        self._extra = extra
        self.sampler = Sampler(interval=0.5, memory_interval=1.0)

    def connector_file(self, database: str, more: Mapping[str, str]) -> Path:
        """What takes every table of the database to a lake of its own, everything else by default."""
        home = self.folder / database
        home.mkdir(exist_ok=True)
        properties = self.cluster.properties(
            database,
            **{
                "schema.include.list": "public",
                "wal2lake.lake.path": str(home / "lake"),
                "wal2lake.state.path": str(home / "state"),
                **self._extra,
                **more,
            },
        )
        return write_properties(home / "connector.properties", properties)

    def copy(self, database: str, table: str = "load") -> float:
        """Seconds of COPY into /dev/null, by psql over TCP."""
        return _timed(
            lambda: subprocess.run(
                [
                    self.cluster.bin / "psql",
                    "-X",
                    "-q",
                    "-d",
                    self.cluster.conninfo(database),
                    "-c",
                    f"COPY {table} TO STDOUT",
                ],
                stdout=subprocess.DEVNULL,
                check=True,
                timeout=_SECONDS,
            )
        )

    def warm(self, database: str, rows: int, more: Mapping[str, str] = MappingProxyType({})) -> float:
        """Seconds of a snapshot in this process, whose Spark and workers are there already."""
        connector = self._fresh(database, more)
        spark = connector.spark()
        spark.sparkContext.parallelize(range(2), 2).mapPartitions(_imported).collect()
        reports: list[Any] = []
        taken = _timed(lambda: reports.extend(connector.snapshot(spark=spark)))
        _require(sum(report.rows for report in reports), rows)
        return taken

    def cold(self, database: str) -> float:
        """Seconds of ``wal2lake snapshot`` from the command line."""
        self._fresh(database)
        started = time.monotonic()
        process = subprocess.Popen(
            [PROGRAM, "snapshot", self.folder / database / "connector.properties"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.sampler.watch(process.pid, DRIVER)
        if process.wait(_SECONDS):
            raise SystemExit(f"wal2lake snapshot ended with {process.returncode}")
        return time.monotonic() - started

    def _fresh(self, database: str, more: Mapping[str, str] = MappingProxyType({})) -> Connector:
        file = self.connector_file(database, more)
        for part in ("lake", "state"):
            shutil.rmtree(self.folder / database / part, ignore_errors=True)
        return Connector.from_file(file)


def main() -> None:
    """Measure and print tables; write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=3, help="counted turns")
    parser.add_argument("--warm-up", type=int, default=1, help="turns before, not counted")
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--table-rows", type=int, default=10_000)
    parser.add_argument("--only", default="large,small", help="of large, small, rules, peer; peer goes with large")
    parser.add_argument("--no-cold", action="store_true", help="warm only")
    parser.add_argument("--peer-rows", type=int, help="rows of the peer's table, where --rows would take too long")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a connector property")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    parts = set(arguments.only.split(","))
    with bench_server(shared_buffers="512MB") as (cluster, folder):
        bench = Bench(cluster, folder, dict(entry.split("=", 1) for entry in arguments.set))
        figures: dict[str, Any] = {
            "server": cluster.execute("postgres", "show server_version")[0][0],
            "cores": os.cpu_count(),
        }
        with bench.sampler:
            if "large" in parts:
                figures["large"] = _large(bench, arguments)
                _print_large(figures)
            if "small" in parts:
                figures["small"] = _small(bench, arguments)
                _print_small(figures)
            if "rules" in parts:
                figures["rules"] = _rules(bench, arguments)
                _print_rules(figures["rules"])
            if "peer" in parts:
                figures["peer"] = _peer(bench, arguments)
                _print_peer(figures["peer"])
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


def filled(bench: Bench, rows: int, name: str) -> str:
    """Return a database whose table ``load`` has so many rows."""
    database = bench.cluster.database(name)
    bench.cluster.run_script(database, Path(__file__).with_name("load.sql"))
    if rows:
        bench.cluster.psql(database, "-c", f"call fill(1, {rows}, {_FILL_ROWS})", seconds=_SECONDS)
    bench.cluster.execute(database, "vacuum analyze load")
    bench.cluster.execute(database, "checkpoint")
    return database


def _large(bench: Bench, arguments: argparse.Namespace) -> dict[str, Any]:
    database, empty = filled(bench, arguments.rows, "large"), filled(bench, 0, "empty")
    seconds: dict[str, list[float]] = {"COPY": [], "warm": []}
    if not arguments.no_cold:
        seconds |= {"start-up": [], "cold": []}
    began = time.time()
    for turn in range(arguments.warm_up + arguments.runs):
        taken = {"COPY": bench.copy(database), "warm": bench.warm(database, arguments.rows)}
        if not arguments.no_cold:
            taken |= {"start-up": bench.cold(empty), "cold": bench.cold(database)}
        keep(seconds, taken, turn, arguments.warm_up)
    bytes_ = bench.cluster.execute(database, "select pg_table_size('load')")[0][0]
    return {
        "rows": arguments.rows,
        "table_bytes": bytes_,
        "lake_bytes": sum(f.stat().st_size for f in (bench.folder / database / "lake").rglob("*.parquet")),
        "seconds": seconds,
        "memory_mb": {} if arguments.no_cold else bench.sampler.memory(began, time.time()),
    }


def _small(bench: Bench, arguments: argparse.Namespace) -> dict[str, Any]:
    database, empty = bench.cluster.database("small"), filled(bench, 0, "empty")
    rows = arguments.table_rows
    bench.cluster.run_script(database, Path(__file__).with_name("load.sql"))
    bench.cluster.psql(database, "-c", f"call fill(1, {rows}, {_FILL_ROWS})", seconds=_SECONDS)
    for number in range(arguments.tables - 1):
        name = f"t{number:03}"
        bench.cluster.execute(database, f"create table {name} (like load including all); insert into {name} table load")
    bench.cluster.execute(database, "vacuum analyze")
    bench.cluster.execute(database, "checkpoint")
    seconds: dict[str, list[float]] = {"warm": []}
    if not arguments.no_cold:
        seconds |= {"start-up": [], "cold": []}
    for turn in range(arguments.warm_up + arguments.runs):
        taken = {"warm": bench.warm(database, rows * arguments.tables)}
        if not arguments.no_cold:
            taken |= {"start-up": bench.cold(empty), "cold": bench.cold(database)}
        keep(seconds, taken, turn, arguments.warm_up)
    return {"tables": arguments.tables, "rows": rows, "seconds": seconds}


def _rules(bench: Bench, arguments: argparse.Namespace) -> dict[str, Any]:
    """A warm snapshot without rules, and with those of the catalogue and two of a user, in turn."""
    database = filled(bench, arguments.rows, "rules")
    seconds: dict[str, list[float]] = {"without": [], "with": []}
    for turn in range(arguments.warm_up + arguments.runs):
        without = bench.warm(database, arguments.rows, {"wal2lake.quality.enabled": "false"})
        keep(
            seconds, {"without": without, "with": bench.warm(database, arguments.rows, _RULES)}, turn, arguments.warm_up
        )
    return {"rows": arguments.rows, "seconds": seconds}


def _peer(bench: Bench, arguments: argparse.Namespace) -> dict[str, Any]:
    """Debezium's engine and a cold snapshot of ours, in turn, of one table."""
    libraries = peer.jars(PEER_FOLDER)
    rows = arguments.peer_rows or arguments.rows
    database, empty = filled(bench, rows, "peer"), filled(bench, 0, "empty")
    seconds: dict[str, list[float]] = {
        "Debezium, all": [],
        "Debezium, reading": [],
        "warm": [],
        "start-up": [],
        "cold": [],
    }
    for turn in range(arguments.runs):
        read, whole = peer.snapshot_seconds(bench.cluster, database, bench.folder / "peer", libraries, rows)
        taken = {"Debezium, all": whole, "Debezium, reading": read, "warm": bench.warm(database, rows)}
        taken |= {"start-up": bench.cold(empty), "cold": bench.cold(database)}
        keep(seconds, taken, turn, 0)
    return {"rows": rows, "seconds": seconds}


def keep(seconds: dict[str, list[float]], taken: dict[str, float], turn: int, warm_up: int) -> None:
    """Print a turn, and keep its figures if it counts."""
    print(
        f"turn {turn}: " + "  ".join(f"{name} {value:.2f} s" for name, value in taken.items()),
        file=sys.stderr,
        flush=True,
    )
    if turn >= warm_up:
        for name, value in taken.items():
            seconds[name].append(value)


def _beyond(seconds: dict[str, list[float]]) -> dict[str, list[float]]:
    """The runs of the product, start-up taken away."""
    found = {"warm": seconds["warm"]}
    if "cold" in seconds:
        found["cold, beyond start-up"] = [
            whole - empty for whole, empty in zip(seconds["cold"], seconds["start-up"], strict=True)
        ]
    return found


def _print_large(figures: dict[str, Any]) -> None:
    large = figures["large"]
    seconds = large["seconds"]
    print(
        f"\n{large['rows']:,} rows × 10 columns ({large['table_bytes'] / 2**20:,.0f} MiB, "
        f"{large['lake_bytes'] / 2**20:,.0f} MiB in the lake); PostgreSQL {figures['server']} over TCP on the same "
        f"machine, {figures['cores']} cores; {len(seconds['COPY'])} turns"
    )
    print("| | seconds: median (min … max) | × COPY: median (min … max) | rows/s |\n|---|---|---|---|")
    for name, values in {"COPY": seconds["COPY"], **_beyond(seconds)}.items():
        ratios = [value / base for value, base in zip(values, seconds["COPY"], strict=True)]
        rate = large["rows"] / statistics.median(values)
        print(f"| {name} | {spread(values, 1)} | {spread(ratios, 2)} | {rate:,.0f} |")
    if large["memory_mb"]:
        held = ", ".join(
            f"{name} {large['memory_mb'][name]['max']:,.0f}"
            for name in (*PRODUCT, "product")
            if name in large["memory_mb"]
        )
        print(f"\nmemory of the cold runs, peak, MB: {held}")


def _print_small(figures: dict[str, Any]) -> None:
    small = figures["small"]
    print(f"\n{small['tables']} tables × {small['rows']:,} rows × 10 columns; {len(small['seconds']['warm'])} turns")
    print("| | seconds: median (min … max) |\n|---|---|")
    for name, values in _beyond(small["seconds"]).items():
        print(f"| {name} | {spread(values, 1)} |")


def _print_rules(found: dict[str, Any]) -> None:
    seconds = found["seconds"]
    ratios = [judged / plain for judged, plain in zip(seconds["with"], seconds["without"], strict=True)]
    print(f"\n{found['rows']:,} rows × 10 columns, with rules / without; {len(ratios)} turns")
    print("| without, seconds | with, seconds | ratio |\n|---|---|---|")
    print(f"| {spread(seconds['without'], 1)} | {spread(seconds['with'], 1)} | {spread(ratios, 2)} |")


def _print_peer(found: dict[str, Any]) -> None:
    seconds = found["seconds"]
    reading = seconds["Debezium, reading"]
    print(f"\n{found['rows']:,} rows × 10 columns; {len(reading)} turns; {peer.PACKAGE}'s Debezium, no-op consumer")
    print("| | seconds: median (min … max) | times faster than Debezium's reading | rows/s |\n|---|---|---|---|")
    for name, values in {name: seconds[name] for name in ("Debezium, all", "Debezium, reading")}.items():
        print(f"| {name} | {spread(values, 1)} | | {found['rows'] / statistics.median(values):,.0f} |")
    for name, values in _beyond(seconds).items():
        ratios = [base / value for value, base in zip(values, reading, strict=True)]
        rate = found["rows"] / statistics.median(values)
        print(f"| {name} | {spread(values, 1)} | {spread(ratios, 1)} | {rate:,.0f} |")


def spread(values: list[float], digits: int) -> str:
    """Return the median, the minimum and the maximum."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} … {max(values):.{digits}f})"


def _timed(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def _imported(part: Any) -> Any:
    """In a worker: load what a snapshot's task needs, so that warm means warm."""
    import cdc_core.snapshot.copy.task

    yield cdc_core.snapshot.copy.task.__name__


def _require(found: int, expected: int) -> None:
    if found != expected:
        raise SystemExit(f"the snapshot brought {found} rows, expected {expected}")


if __name__ == "__main__":
    main()
