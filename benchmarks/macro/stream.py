"""Slot → typed events, and slot → changelog, checks and merged lake table, each beside pg_recvlogical in one run.

    python -m benchmarks.macro.stream --rows 1000000 --runs 3

Every measured run reads the same WAL through a copy of one slot. The three are taken in turn (A B C A B C …), so that a
machine that drifts drifts for all; what is compared is the ratio within a turn. A warm-up turn is not counted. Starting
Spark's session is not part of a run; everything from START_REPLICATION to the last commit is.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.server import bench_server
from cdc_core.assemble import Connector
from cdc_core.engine.reports import Until
from cdc_core.lsn import Lsn
from tests.support.cluster import Cluster
from tests.support.lake import write_properties

_RUN_SECONDS = 900


def main() -> None:
    """Measure and print a table; write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--transaction", type=int, default=1_000, help="rows a transaction")
    parser.add_argument("--runs", type=int, default=3, help="counted turns")
    parser.add_argument("--warm-up", type=int, default=1, help="turns before, not counted")
    parser.add_argument("--only", choices=("noop", "lake"), help="measure one target only")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    with bench_server() as (cluster, folder):
        figures = _measure(cluster, folder, arguments)
    _print(figures, arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


def prepare(cluster: Cluster, rows: int, transaction: int) -> tuple[str, Lsn]:
    """A database whose slot ``base`` has ``rows`` inserts before it, and the WAL's end after them."""
    database = cluster.database("bench")
    cluster.run_script(database, Path(__file__).with_name("load.sql"))
    cluster.execute(database, "create publication bench for table load")
    cluster.execute(database, "select pg_create_logical_replication_slot('base', 'pgoutput')")
    cluster.execute(database, f"call fill(1, {rows}, {transaction})")
    end = Lsn.parse(cluster.execute(database, "select pg_current_wal_insert_lsn()")[0][0])
    cluster.execute(database, "checkpoint")
    return database, end


def _measure(cluster: Cluster, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    database, end = prepare(cluster, arguments.rows, arguments.transaction)
    targets = [target for target in ("noop", "lake") if arguments.only in (None, target)]
    seconds: dict[str, list[float]] = {name: [] for name in ("pg_recvlogical", *targets)}
    for turn in range(arguments.warm_up + arguments.runs):
        taken = {"pg_recvlogical": recvlogical(cluster, database, end)}
        for target in targets:
            taken[target] = _wal2lake(cluster, database, folder, target, turn, end, arguments.rows)
        print(f"turn {turn}: " + "  ".join(f"{k} {v:.2f} s" for k, v in taken.items()), file=sys.stderr, flush=True)
        if turn >= arguments.warm_up:
            for name, value in taken.items():
                seconds[name].append(value)
    return {
        "rows": arguments.rows,
        "rows_a_transaction": arguments.transaction,
        "server": cluster.execute("postgres", "show server_version")[0][0],
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "seconds": seconds,
        "driver_python_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def connector_properties(cluster: Cluster, database: str, slot: str, folder: Path) -> dict[str, str]:
    """What takes the prepared table from ``slot`` to a lake in ``folder``, everything else by default."""
    return cluster.properties(
        database,
        **{
            "slot.name": slot,
            "publication.name": "bench",
            "publication.autocreate.mode": "disabled",
            "schema.include.list": "public",
            "snapshot.mode": "no_data",
            "wal2lake.lake.path": str(folder / "lake"),
            "wal2lake.state.path": str(folder / "state"),
        },
    )


def copy_slot(cluster: Cluster, database: str, name: str) -> None:
    """A slot of its own over the WAL that ``base`` holds."""
    cluster.execute(database, "select pg_copy_logical_replication_slot('base', %s)", [name])


def drop_slot(cluster: Cluster, database: str, name: str) -> None:
    """Drop it as soon as the server lets it go."""
    deadline = time.monotonic() + 30
    while True:
        try:
            cluster.execute(database, "select pg_drop_replication_slot(%s)", [name])
            return
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def recvlogical(cluster: Cluster, database: str, end: Lsn) -> float:
    """Seconds that pg_recvlogical takes over the WAL up to ``end``."""
    copy_slot(cluster, database, "reference")
    started = time.monotonic()
    subprocess.run(
        [
            str(cluster.bin / "pg_recvlogical"),
            *("-h", cluster.host, "-p", str(cluster.port), "-U", cluster.user, "-d", database),
            *("--slot", "reference", "--start", "-F", "0", "-f", "/dev/null", "--no-loop", "--endpos", str(end)),
            *("-o", "proto_version=1", "-o", "publication_names=bench"),
        ],
        check=True,
        timeout=_RUN_SECONDS,
        env={**os.environ, "PGPASSWORD": cluster.password},
        capture_output=True,
    )
    taken = time.monotonic() - started
    drop_slot(cluster, database, "reference")
    return taken


def _wal2lake(cluster: Cluster, database: str, folder: Path, target: str, turn: int, end: Lsn, rows: int) -> float:
    slot = f"measured_{target}_{turn}"
    copy_slot(cluster, database, slot)
    lake = folder / f"turn{turn}" / "lake"
    properties = {
        **connector_properties(cluster, database, slot, folder / f"turn{turn}"),
        "wal2lake.sinks": target,
        "wal2lake.spark.spark.driver.memory": "3g",
    }
    connector = Connector.from_file(write_properties(folder / f"{slot}.properties", properties))
    spark = connector.spark()
    spark.range(1).count()
    started = time.monotonic()
    report = connector.stream(Until(lsn=end, max_seconds=_RUN_SECONDS), spark=spark)
    taken = time.monotonic() - started
    if report.events != rows:
        raise SystemExit(f"{target}: expected {rows} events, found {report.events} ({report.stopped_by})")
    if target == "lake":
        found = spark.read.format("delta").load(str(lake / "test" / "public" / "load")).count()
        if found != rows:
            raise SystemExit(f"the lake holds {found} rows, expected {rows}")
    drop_slot(cluster, database, slot)
    shutil.rmtree(lake, ignore_errors=True)
    return taken


def _print(figures: dict[str, Any], arguments: argparse.Namespace) -> None:
    seconds = figures["seconds"]
    reference = seconds["pg_recvlogical"]
    print(
        f"{figures['rows']:,} inserts × 10 columns, {arguments.transaction:,} rows a transaction; PostgreSQL "
        f"{figures['server']} over TCP on the same machine, {figures['cores']} cores; {arguments.runs} turns"
    )
    print("| target | seconds: median (min … max) | × pg_recvlogical: median (min … max) | rows/s |")
    print("|---|---|---|---|")
    for name, values in seconds.items():
        ratios = [value / base for value, base in zip(values, reference, strict=True)]
        print(
            f"| {name} | {statistics.median(values):.1f} ({min(values):.1f} … {max(values):.1f}) "
            f"| {statistics.median(ratios):.2f} ({min(ratios):.2f} … {max(ratios):.2f}) "
            f"| {figures['rows'] / statistics.median(values):,.0f} |"
        )
    print(f"\nPython memory of the driver, peak: {figures['driver_python_peak_mb']:.0f} MB")


if __name__ == "__main__":
    main()
