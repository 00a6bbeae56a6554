"""What an incremental snapshot costs the stream beside it.

    python -m benchmarks.macro.snapshot_beside --rows 1000000 --runs 3

A turn writes ``--rows`` rows in transactions of 1,000 as fast as the server takes them, while wal2lake streams them
into the lake, and measures the time from the first write until the lake has the last one: once alone, once with an
incremental snapshot of another table, which is large enough that it does not end before. What is compared is the
ratio within a turn.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.macro.stream import connector_properties, drop_slot
from benchmarks.server import bench_server
from cdc_core.assemble import Connector
from cdc_core.engine.reports import Until
from cdc_core.lsn import Lsn
from cdc_core.snapshot.notifications import Notification
from cdc_core.snapshot.signals.channels import Inbox
from cdc_core.snapshot.signals.parse import Signal
from tests.support.cluster import Cluster
from tests.support.lake import write_properties

_SECONDS = 600


@dataclass
class Turn:
    """``seconds`` for the stream; rows of the snapshot in the lake by then."""

    seconds: float
    snapshot_rows: int


def main() -> None:
    """Measure and print a table; write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--other", type=int, default=2_000_000, help="rows of the table that is read in chunks")
    parser.add_argument("--runs", type=int, default=3, help="counted turns")
    parser.add_argument("--warm-up", type=int, default=1, help="turns before, not counted")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    with bench_server() as (cluster, folder):
        figures = _measure(cluster, folder, arguments)
    _print(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


def _measure(cluster: Cluster, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    database = cluster.database("beside")
    cluster.run_script(database, Path(__file__).with_name("load.sql"))
    cluster.execute(database, f"call fill(1, {arguments.other}, 100000)")
    cluster.execute(database, "alter table load rename to other")
    cluster.execute(database, "create table load (like other including all)")
    cluster.execute(database, "create publication bench for table load, other")
    cluster.execute(database, "vacuum analyze other")
    figures: dict[str, Any] = {"rows": arguments.rows, "alone": [], "beside": [], "snapshot_rows": []}
    for number in range(arguments.warm_up + arguments.runs):
        taken = {
            with_snapshot: _turn(cluster, database, folder / f"{number}-{with_snapshot}", arguments.rows, with_snapshot)
            for with_snapshot in (False, True)
        }
        alone, beside = taken[False], taken[True]
        print(
            f"turn {number}: alone {alone.seconds:.2f} s, beside {beside.seconds:.2f} s, "
            f"{beside.snapshot_rows:,} rows read meanwhile",
            file=sys.stderr,
            flush=True,
        )
        if number >= arguments.warm_up:
            figures["alone"].append(alone.seconds)
            figures["beside"].append(beside.seconds)
            figures["snapshot_rows"].append(beside.snapshot_rows)
    return figures


def _turn(cluster: Cluster, database: str, folder: Path, rows: int, with_snapshot: bool) -> Turn:
    slot = "measured"
    cluster.execute(database, "truncate load")
    cluster.execute(database, "select pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
    properties = connector_properties(cluster, database, slot, folder)
    file = write_properties(folder.parent / f"{folder.name}.properties", properties)
    connector, inbox, stop = Connector.from_file(file), Inbox(), threading.Event()
    spark = connector.spark()
    spark.range(1).count()
    landed = threading.Event()
    if with_snapshot:
        inbox.put(Signal("1", "execute-snapshot", {"data-collections": ["public.other"]}))

    def note(progress: Notification) -> None:
        if progress.type.value == "IN_PROGRESS":
            landed.set()

    streaming = threading.Thread(
        target=connector.stream,
        args=(Until(max_seconds=_SECONDS), spark),
        kwargs={"should_stop": stop.is_set, "inbox": inbox, "on_notification": note},
    )
    streaming.start()
    try:
        # Both begin with a stream that is at work.
        _wait(lambda: _confirmed(cluster, slot) > 0 and (landed.is_set() or not with_snapshot))
        before = _lake_rows(spark, folder)
        began = time.monotonic()
        cluster.execute(database, f"call fill(1, {rows}, 1000)")
        end = Lsn.parse(cluster.execute(database, "select pg_current_wal_insert_lsn()")[0][0])
        _wait(lambda: _confirmed(cluster, slot) >= end)
        seconds = time.monotonic() - began
        read = _lake_rows(spark, folder) - before
    finally:
        stop.set()
        streaming.join(120)
    found = spark.read.format("delta").load(str(folder / "lake" / "test" / "public" / "load")).count()
    if found != rows:
        raise SystemExit(f"the lake holds {found} rows, expected {rows}")
    drop_slot(cluster, database, slot)
    shutil.rmtree(folder, ignore_errors=True)
    return Turn(seconds, read)


def _confirmed(cluster: Cluster, slot: str) -> int:
    query = "select confirmed_flush_lsn from pg_replication_slots where slot_name = %s and active"
    found = cluster.execute("postgres", query, [slot])
    return Lsn.parse(found[0][0]) if found and found[0][0] else 0


def _lake_rows(spark: Any, folder: Path) -> int:
    path = folder / "lake" / "test" / "public" / "other"
    return int(spark.read.format("delta").load(str(path)).count()) if path.exists() else 0


def _wait(condition: Any) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("the run did not get there in time")
        time.sleep(0.05)


def _print(figures: dict[str, Any]) -> None:
    ratios = [beside / alone for beside, alone in zip(figures["beside"], figures["alone"], strict=True)]
    print(f"{figures['rows']:,} inserts × 10 columns, 1,000 rows a transaction, while an incremental snapshot runs")
    print("| | seconds: median (min … max) | rows of the snapshot meanwhile |")
    print("|---|---|---|")
    for name in ("alone", "beside"):
        values = figures[name]
        read = f"{statistics.median(figures['snapshot_rows']):,.0f}" if name == "beside" else ""
        print(f"| {name} | {statistics.median(values):.1f} ({min(values):.1f} … {max(values):.1f}) | {read} |")
    print(f"\nratio within a turn: {statistics.median(ratios):.2f} ({min(ratios):.2f} … {max(ratios):.2f})")


if __name__ == "__main__":
    main()
