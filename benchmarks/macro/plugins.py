"""The same WAL through each output plug-in: into the lake, or to typed rows only.

    python -m benchmarks.macro.plugins --rows 1000000 --runs 3

Every plug-in has its own slot from before the inserts. The plug-ins are taken in turn (A B C A B C …); what is compared
is the ratio to pgoutput within a turn. A warm-up turn is not counted. Starting Spark's session is not part of a run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.macro.stream import connector_properties, drop_slot
from benchmarks.server import bench_server
from cdc_core.assemble import Connector
from cdc_core.engine.reports import Until
from cdc_core.lsn import Lsn
from tests.support.cluster import Cluster
from tests.support.lake import write_properties

_RUN_SECONDS = 900
PLUGINS = {
    "pgoutput": {},
    "decoderbufs": {"plugin.name": "decoderbufs"},
    "wal2json, format 2": {"plugin.name": "wal2json"},
    "wal2json, format 1": {"plugin.name": "wal2json", "slot.stream.params": "format-version=1"},
}


def main() -> None:
    """Measure and print a table; write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--transaction", type=int, default=1_000, help="rows a transaction")
    parser.add_argument("--runs", type=int, default=3, help="counted turns")
    parser.add_argument("--warm-up", type=int, default=1, help="turns before, not counted")
    parser.add_argument("--sink", choices=("noop", "lake"), default="lake")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    with bench_server() as (cluster, folder):
        seconds = _measure(cluster, folder, arguments)
    _print(seconds, arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(seconds, indent=1))


def _measure(cluster: Cluster, folder: Path, arguments: argparse.Namespace) -> dict[str, list[float]]:
    database = cluster.database("bench")
    cluster.run_script(database, Path(__file__).with_name("load.sql"))
    cluster.execute(database, "create publication bench for table load")
    bases = {name: values.get("plugin.name", "pgoutput") for name, values in PLUGINS.items()}
    for plugin in set(bases.values()):
        cluster.execute(database, "select pg_create_logical_replication_slot(%s, %s)", [f"base_{plugin}", plugin])
    cluster.execute(database, f"call fill(1, {arguments.rows}, {arguments.transaction})")
    end = Lsn.parse(cluster.execute(database, "select pg_current_wal_insert_lsn()")[0][0])
    cluster.execute(database, "checkpoint")
    seconds: dict[str, list[float]] = {name: [] for name in PLUGINS}
    for turn in range(arguments.warm_up + arguments.runs):
        for number, name in enumerate(PLUGINS):
            slot = f"measured_{turn}_{number}"
            cluster.execute(database, "select pg_copy_logical_replication_slot(%s, %s)", [f"base_{bases[name]}", slot])
            taken = _run(cluster, database, folder / slot, slot, name, end, arguments)
            drop_slot(cluster, database, slot)
            print(f"turn {turn}: {name} {taken:.2f} s", file=sys.stderr, flush=True)
            if turn >= arguments.warm_up:
                seconds[name].append(taken)
    return seconds


def _run(
    cluster: Cluster, database: str, folder: Path, slot: str, name: str, end: Lsn, arguments: argparse.Namespace
) -> float:
    folder.mkdir()
    properties: dict[str, Any] = {
        **connector_properties(cluster, database, slot, folder),
        "wal2lake.sinks": arguments.sink,
        "wal2lake.spark.spark.driver.memory": "3g",
        **PLUGINS[name],
    }
    connector = Connector.from_file(write_properties(folder / "connector.properties", properties))
    spark = connector.spark()
    spark.range(1).count()
    started = time.monotonic()
    report = connector.stream(Until(lsn=end, max_seconds=_RUN_SECONDS), spark=spark)
    taken = time.monotonic() - started
    if report.events != arguments.rows:
        raise SystemExit(f"{name}: expected {arguments.rows} events, found {report.events} ({report.stopped_by})")
    return taken


def _print(seconds: dict[str, list[float]], arguments: argparse.Namespace) -> None:
    print(
        f"{arguments.rows:,} inserts × 10 columns, {arguments.transaction:,} rows a transaction, {arguments.sink}; "
        f"{os.cpu_count()} cores; {arguments.runs} turns"
    )
    print("| plug-in | seconds: median (min … max) | rows/s | rate to pgoutput's: median (min … max) |")
    print("|---|---|---|---|")
    for name, values in seconds.items():
        ratios = [base / value for base, value in zip(seconds["pgoutput"], values, strict=True)]
        print(
            f"| {name} | {statistics.median(values):.1f} ({min(values):.1f} … {max(values):.1f}) "
            f"| {arguments.rows / statistics.median(values):,.0f} "
            f"| {statistics.median(ratios):.2f} ({min(ratios):.2f} … {max(ratios):.2f}) |"
        )


if __name__ == "__main__":
    main()
