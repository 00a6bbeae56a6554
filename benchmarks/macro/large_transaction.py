"""One transaction of millions of rows, three times: inserts, an update of every row, a delete of half; time and memory.

    python -m benchmarks.macro.large_transaction             # 2.3 M rows of 1 kB
    python -m benchmarks.macro.large_transaction --quick     # small: proves that it runs
    python -m benchmarks.macro.large_transaction --running --rows 1000000

Each transaction is read by ``wal2lake run`` with its defaults, as a user runs it, until the lake has it; then the lake
is compared with the source. Beside it the same WAL is read by pg_recvlogical through a copy of the slot. Memory is the
peak of each process (VmHWM): of the driver, of Java, and of the largest of the Python workers.

``--running``: a run is up while the transactions are made, with wal2lake.streaming.transactions=off and =on; seconds
from the end of COMMIT to the moment at which the lake table shows all of its rows, and how much the server wrote to
disk for decoding (pg_stat_replication_slots).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deltalake.exceptions import TableNotFoundError

from benchmarks.freshness.product import Product
from benchmarks.macro.measured import Measured, measured, recvlogical
from benchmarks.macro.stream import drop_slot
from benchmarks.server import bench_server
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, query, write_properties

_TABLE = TableId("public", "big")
_MOST_SECONDS, _PAUSE_SECONDS = 600.0, 0.2
_STATISTICS_SECONDS = 1.0  # after which the server has published them


@dataclass(frozen=True, slots=True)
class Figures:
    """One transaction, and the seconds that pg_recvlogical took for it."""

    name: str
    rows: int
    recvlogical_seconds: float
    run: Measured


def transactions(rows: int) -> list[tuple[str, int, str]]:
    """Name, number of changed rows and SQL."""
    return [
        ("insert", rows, f"insert into big select g, repeat(md5(g::text), 32) from generate_series(1, {rows}) g"),
        ("update of every row", rows, "update big set v = repeat(md5(v), 32)"),
        ("delete of half", rows // 2, "delete from big where id % 2 = 0"),
    ]


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
    measured(cluster, "run", str(file), "--until-idle", "2")
    found = []
    for name, count, statement in transactions(rows):
        cluster.execute(database, "select pg_copy_logical_replication_slot(%s, 'reference')", [settings["slot.name"]])
        cluster.execute(database, statement)
        reference = recvlogical(cluster, database, "reference", settings["publication.name"])
        drop_slot(cluster, database, "reference")
        run = measured(cluster, "run", str(file), "--until-idle", "2")
        if difference(file, [_TABLE]):
            raise SystemExit(f"{name}: the lake differs from the source")
        found.append(Figures(name, count, reference, run))
        print(found[-1], file=sys.stderr, flush=True)
    return found


@dataclass(frozen=True, slots=True)
class Shown:
    """A transaction that was made beside a run: seconds that it took, and from its commit to the lake."""

    streaming: str
    name: str
    rows: int
    made_seconds: float
    shown_seconds: float
    spilled_mb: float
    streamed_mb: float


def measure_running(
    cluster: Cluster, folder: Path, rows: int, extra: dict[str, str], times: int, pause: float
) -> list[Shown]:
    """Make large transactions beside a run, with and without transactions in progress.

    Each waits for ``pause`` seconds before its COMMIT, as one does whose statements are spread over time.
    """
    found = []
    for streaming in ("off", "on"):
        database, place = cluster.database("running"), folder / f"running_{streaming}"
        place.mkdir()
        cluster.execute(database, "create table big (id bigint primary key, n int, v text)")
        settings = cluster.properties(
            database,
            **{
                "schema.include.list": "public",
                "wal2lake.lake.path": str(place / "lake"),
                "wal2lake.state.path": str(place / "state"),
                "wal2lake.streaming.transactions": streaming,
                **extra,
            },
        )
        file = write_properties(place / "running.properties", settings)
        product = Product(file)
        lake = place / "lake" / "test" / "public" / "big"
        try:
            statements = [
                ("insert", f"insert into big select g, 0, repeat(md5(g::text), 8) from generate_series(1, {rows}) g"),
                *(("update of every row", f"update big set n = {number}") for number in range(1, times + 1)),
            ]
            cluster.execute(database, "insert into big values (0, -1, '')")
            _await_rows(lake, -1, 1)
            for number, (name, statement) in enumerate(statements):
                began = time.monotonic()
                with cluster.connect(database) as connection, connection.transaction():
                    connection.execute(statement.encode())
                    time.sleep(pause)
                committed = time.monotonic()
                _await_rows(lake, number, rows + (number > 0))
                shown = time.monotonic()
                time.sleep(_STATISTICS_SECONDS)
                ((spilled, streamed),) = cluster.execute(
                    database,
                    "select spill_bytes, stream_bytes from pg_stat_replication_slots where slot_name = %s",
                    [settings["slot.name"]],
                )
                found.append(Shown(streaming, name, rows, committed - began, shown - committed,
                                   spilled / 1e6, streamed / 1e6))  # fmt: skip
                print(found[-1], file=sys.stderr, flush=True)
        finally:
            product.stop()
        if difference(file, [_TABLE]):
            raise SystemExit("the lake differs from the source")
        drop_slot(cluster, database, settings["slot.name"])
    return found


def _await_rows(lake: Path, number: int, rows: int) -> None:
    end = time.monotonic() + _MOST_SECONDS
    while time.monotonic() < end:
        with suppress(TableNotFoundError):
            if query(lake, f"select count(*) as c from t where n = {number}")["c"][0].as_py() >= rows:
                return
        time.sleep(_PAUSE_SECONDS)
    raise SystemExit(f"the lake did not show {rows} rows within {_MOST_SECONDS:g} s")


def main() -> None:
    """Measure and print a table; write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small: proves that it runs, measures nothing")
    parser.add_argument("--rows", type=int, default=2_300_000)
    parser.add_argument(
        "--running", action="store_true", help="beside a run, with and without transactions in progress"
    )
    parser.add_argument("--times", type=int, default=3, help="updates of every row, with --running")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds before each COMMIT, with --running")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a connector property")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    rows = 60_000 if arguments.quick else arguments.rows
    extra: dict[str, str] = {"wal2lake.merge.part.max.bytes": str(4 << 20)} if arguments.quick else {}
    extra |= dict(pair.split("=", 1) for pair in arguments.set)
    found: Sequence[Figures | Shown]
    with bench_server() as (cluster, folder):
        if arguments.running:
            found = measure_running(cluster, folder, rows, extra, arguments.times, arguments.pause)
            _print_shown(found)
        else:
            found = measure(cluster, folder, rows, extra)
            _print(found)
    if arguments.json:
        figures: dict[str, Any] = {"transactions": [asdict(one) for one in found], "cores": os.cpu_count()}
        arguments.json.write_text(json.dumps(figures, indent=1))


def _print(found: list[Figures]) -> None:
    print("One transaction each, rows of 1 kB; seconds are those of `wal2lake run`, start and end included.")
    print("| transaction | rows | s | × pg_recvlogical | driver MB | Java MB | largest worker MB | cores of others |")
    print("|---|---|---|---|---|---|---|---|")
    for one in found:
        run = one.run
        print(
            f"| {one.name} | {one.rows:,} | {run.seconds:.0f} | {run.seconds / one.recvlogical_seconds:.1f} "
            f"| {run.driver_mb:,.0f} | {run.java_mb:,.0f} | {run.worker_mb:,.0f} | {run.others:.2f} |"
        )


def _print_shown(found: list[Shown]) -> None:
    print("| streaming | transaction | rows | made in s | in the lake after s | spilled MB | streamed MB |")
    print("|---|---|---|---|---|---|---|")
    for one in found:
        print(
            f"| {one.streaming} | {one.name} | {one.rows:,} | {one.made_seconds:.1f} | {one.shown_seconds:.1f} "
            f"| {one.spilled_mb:,.0f} | {one.streamed_mb:,.0f} |"
        )


if __name__ == "__main__":
    main()
