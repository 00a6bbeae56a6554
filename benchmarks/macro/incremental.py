"""An incremental snapshot beside updates, against the first snapshot of the same table in the same run.

    python -m benchmarks.macro.incremental --rows 1000000 --rate 500 --turns 3

A turn takes the first snapshot of a table of ``--rows`` rows; then wal2lake streams updates of another table, as many
as ``--rate`` a second, at first alone and then with an incremental snapshot of the table. Wall time is until all rows
are in the lake. CPU time is of all processes of wal2lake and of the server, without what the stream alone uses in that
time. Freshness is the time from an update's commit until the round that merges it has ended (p95). What is compared are
the ratios within a turn.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.freshness.processes import processes
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

_SECONDS, _ALONE_SECONDS, _ROUND_SECONDS, _UPDATED_ROWS = 1800, 25.0, 3.0, 100_000


@dataclass
class Turn:
    """Wall and CPU seconds of both snapshots, the share of the stream that was subtracted, and freshness without and
    with the incremental one.
    """

    first: float
    first_cpu: float
    beside: float
    beside_cpu: float
    stream_cpu: float
    fresh_alone: float
    fresh_beside: float


@dataclass
class Freshness:
    """``commits`` are times of commits, each with a position before it; ``rounds`` ends of rounds with their LSN."""

    commits: list[tuple[float, int]] = field(default_factory=list)
    rounds: list[tuple[float, int]] = field(default_factory=list)

    def p95(self, since: float, until: float) -> float:
        """The 95th percentile of the lag of updates that were committed in that time, in seconds."""
        lags = []
        for at, lsn in self.commits:
            merged = [end for end, to_lsn in self.rounds if to_lsn > lsn]
            if since <= at <= until and merged:
                lags.append(min(merged) - at)
        return statistics.quantiles(lags, n=20)[-1]


def main() -> None:
    """Measure and print; write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=500, help="updates a second")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path, help="file for the figures")
    given = parser.parse_args()
    turns = []
    with bench_server() as (cluster, folder):
        database = cluster.database("incremental")
        cluster.run_script(database, Path(__file__).with_name("load.sql"))
        cluster.execute(database, f"call fill(1, {given.rows}, 100000)")
        cluster.execute(database, "alter table load rename to other")
        cluster.execute(database, "create table load (like other including all)")
        cluster.execute(database, f"call fill(1, {_UPDATED_ROWS}, 100000)")
        cluster.execute(database, "create publication bench for table load, other")
        cluster.execute(database, "vacuum analyze")
        _first(cluster, database, folder / "warm")
        for number in range(given.turns):
            first = _first(cluster, database, folder / f"first-{number}")
            turn = Turn(*first, *_beside(cluster, database, folder / f"beside-{number}", given.rate, given.rows))
            turns.append(turn)
            print(f"turn {number}: {turn}", file=sys.stderr, flush=True)
    _print(given, turns)
    if given.json:
        given.json.write_text(json.dumps([asdict(turn) for turn in turns], indent=1))


def _first(cluster: Cluster, database: str, folder: Path) -> tuple[float, float]:
    more = {"snapshot.mode": "initial", "table.include.list": "public.other"}
    connector, spark = _connector(cluster, database, folder, more)
    began, cpu = time.monotonic(), _cpu(cluster)
    connector.initial_snapshot(spark=spark)
    taken = time.monotonic() - began, _cpu(cluster) - cpu
    drop_slot(cluster, database, "measured")
    shutil.rmtree(folder, ignore_errors=True)
    return taken


def _beside(
    cluster: Cluster, database: str, folder: Path, rate: int, rows: int
) -> tuple[float, float, float, float, float]:
    cluster.execute(database, "select pg_create_logical_replication_slot('measured', 'pgoutput')")
    connector, spark = _connector(cluster, database, folder, {})
    inbox, stop, ended, fresh = Inbox(), threading.Event(), threading.Event(), Freshness()

    def note(progress: Notification) -> None:
        if progress.type.value == "COMPLETED":
            ended.set()

    writing = threading.Thread(target=_update, args=(cluster, database, rate, stop, fresh))
    streaming = threading.Thread(
        target=connector.stream,
        args=(Until(max_seconds=_SECONDS), spark),
        kwargs={
            "should_stop": stop.is_set,
            "inbox": inbox,
            "on_notification": note,
            "on_round": lambda report: fresh.rounds.append((time.monotonic(), int(report.lsn))),
        },
    )
    writing.start()
    streaming.start()
    try:
        _wait((folder / "lake" / "test" / "public" / "load").exists)
        time.sleep(_ALONE_SECONDS)  # Java compiles, and workers start
        began, cpu = time.monotonic(), _cpu(cluster)
        time.sleep(_ALONE_SECONDS)
        alone, alone_since = (_cpu(cluster) - cpu) / (time.monotonic() - began), began
        inbox.put(Signal("1", "execute-snapshot", {"data-collections": ["public.other"]}))
        began, cpu = time.monotonic(), _cpu(cluster)
        _wait(ended.is_set)
        seconds, used = time.monotonic() - began, _cpu(cluster) - cpu
        time.sleep(_ROUND_SECONDS)
    finally:
        stop.set()
        writing.join(60)
        streaming.join(120)
    found = spark.read.format("delta").load(str(folder / "lake" / "test" / "public" / "other")).count()
    if found != rows:
        raise SystemExit(f"the lake has {found} rows, expected {rows}")
    drop_slot(cluster, database, "measured")
    shutil.rmtree(folder, ignore_errors=True)
    lags = fresh.p95(alone_since, began - _ROUND_SECONDS), fresh.p95(began, began + seconds)
    return seconds, used - alone * seconds, alone * seconds, *lags


def _connector(cluster: Cluster, database: str, folder: Path, more: dict[str, str]) -> tuple[Connector, Any]:
    properties = {**connector_properties(cluster, database, "measured", folder), **more}
    connector = Connector.from_file(write_properties(folder.parent / f"{folder.name}.properties", properties))
    spark = connector.spark()
    spark.range(1).count()
    return connector, spark


def _update(cluster: Cluster, database: str, rate: int, stop: threading.Event, fresh: Freshness) -> None:
    """Update rows at an even rate, in ten transactions a second."""
    statement = "update load set ratio = ratio + 1 where id between %s and %s"
    size, at, due = max(1, rate // 10), 1, time.monotonic()
    with cluster.connect(database) as connection:
        while not stop.is_set():
            (lsn,) = connection.execute("select pg_current_wal_insert_lsn()").fetchone() or ("0/0",)
            connection.execute(statement, (at, at + size - 1))
            fresh.commits.append((time.monotonic(), int(Lsn.parse(lsn))))
            at = at + size if at + 2 * size <= _UPDATED_ROWS else 1
            due += 0.1
            stop.wait(max(0.0, due - time.monotonic()))


def _cpu(cluster: Cluster) -> float:
    """CPU seconds of this process, the server and all processes below, with those that ended."""
    known = processes()
    roots = {os.getpid(), cluster.pid}
    found, before = set(roots), set[int]()
    while found != before:
        before = set(found)
        found |= {one.pid for one in known.values() if one.parent in before}
    return sum(known[pid].cpu for pid in found if pid in known)


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("the run did not get there in time")
        time.sleep(0.02)


def _print(given: argparse.Namespace, turns: list[Turn]) -> None:
    print(f"{given.rows:,} rows × 10 columns, beside {given.rate} updates/s")
    print("| | first snapshot | incremental | ratio within a turn |")
    print("|---|---|---|---|")
    compared = (
        ("wall", "first", "beside"),
        ("CPU", "first_cpu", "beside_cpu"),
        ("p95 of freshness: stream alone, beside the snapshot", "fresh_alone", "fresh_beside"),
    )
    for name, one, other in compared:
        firsts, besides = ([getattr(turn, which) for turn in turns] for which in (one, other))
        ratios = [beside / first for first, beside in zip(firsts, besides, strict=True)]
        values = f"{statistics.median(firsts):.1f} s | {statistics.median(besides):.1f} s"
        print(f"| {name} | {values} | {statistics.median(ratios):.2f} ({min(ratios):.2f} … {max(ratios):.2f}) |")


if __name__ == "__main__":
    main()
