"""Comparisons of equal lakes beside a running stream and moving writers: is any of them a false alarm?

    python -m benchmarks.macro.clean_comparisons                       # 10,000 comparisons of 100 tables
    python -m benchmarks.macro.clean_comparisons --comparisons 1000

Writers insert, update, delete, change keys and sometimes truncate; tables are in all delete modes, some without a key.
Ends with 1 if a comparison found a difference, or if more than one in twenty compared nothing: a table that is
truncated meanwhile is left out.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.macro.snapshot import PROGRAM
from benchmarks.server import bench_server
from cdc_core.assemble import Connector
from tests.support.cluster import Cluster
from tests.support.lake import write_properties

_SECONDS = 7200
_ROWS = 60
_MOST_LEFT_OUT = 0.05


def main() -> None:
    """Compare, print the counts, and end with 1 after a false alarm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", type=int, default=10_000)
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between two transactions of a writer")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="no comparison begins after these")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    with bench_server() as (cluster, folder):
        found = _compared(cluster, folder, arguments)
    print(json.dumps(found, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))
    count = found["states"].get("equal", 0) + found["states"].get("left out", 0)
    is_bad = found["false alarms"] or found["states"].get("left out", 0) > _MOST_LEFT_OUT * count
    raise SystemExit(1 if is_bad else 0)


def _compared(cluster: Cluster, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    database = cluster.database("clean")
    tables = [f"t{number:03}" for number in range(arguments.tables)]
    for number, name in enumerate(tables):
        key = "" if number % 10 == 9 else " primary key"
        identity = "default" if key else "full"
        cluster.execute(
            database,
            f"create table {name} (id int{key}, n int, v text); alter table {name} replica identity {identity}; "
            f"insert into {name} select g, 0, 'first' from generate_series(1, {_ROWS}) g",
        )
    properties = cluster.properties(
        database,
        **{
            "schema.include.list": "public",
            "wal2lake.lake.path": str(folder / "lake"),
            "wal2lake.state.path": str(folder / "state"),
            "skipped.operations": "none",
            "wal2lake.lake.delete.mode.soft": "public[.]t..1",
            "wal2lake.lake.delete.mode.history": "public[.]t..2",
        },
    )
    file = write_properties(folder / "clean.properties", properties)
    stop, written = threading.Event(), Counter[str]()
    with (folder / "run.log").open("wb") as log:
        run = subprocess.Popen([PROGRAM, "run", file], stdout=log, stderr=log)
        try:
            _await_lake(run, folder)
            writers = [
                threading.Thread(target=_write, args=(cluster, database, tables, stop, written, arguments, number))
                for number in range(arguments.writers)
            ]
            for writer in writers:
                writer.start()
            found = _loop(file, arguments, run)
            stop.set()
            for writer in writers:
                writer.join(60)
        finally:
            stop.set()
            run.terminate()
            run.wait(120)
    return {**found, "transactions written": written["transactions"]}


def _await_lake(run: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait for the end of the snapshot."""
    deadline = time.monotonic() + 600
    while "snapshot: " not in (said := (folder / "run.log").read_text()):
        if run.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(said[-3000:])
        time.sleep(0.5)


def _loop(file: Path, arguments: argparse.Namespace, run: subprocess.Popen[bytes]) -> dict[str, Any]:
    states, reasons, alarms = Counter[str](), Counter[str](), list[str]()
    began, done, connector = time.monotonic(), 0, Connector.from_file(file)
    while done < arguments.comparisons and time.monotonic() - began < arguments.seconds:
        if run.poll() is not None:
            raise SystemExit("the run has ended")
        for result in connector.reconcile().tables:
            done += 1
            states[result.state.value] += 1
            if result.state.value == "left out":
                reasons[str(result.reason).split(":")[0]] += 1
            elif result.found.count or (result.changelog is not None and not result.changelog.is_whole):
                alarms.append(f"{result.table}: {result.found} {result.changelog}")
    return {
        "comparisons": done,
        "states": dict(states),
        "reasons": dict(reasons),
        "false alarms": alarms[:20],
        "seconds": round(time.monotonic() - began, 1),
    }


def _write(
    cluster: Cluster,
    database: str,
    tables: list[str],
    stop: threading.Event,
    written: Counter[str],
    arguments: argparse.Namespace,
    number: int,
) -> None:
    """Transactions over a few tables, until ``stop``."""
    chance = random.Random(arguments.seed * 1000 + number)
    with cluster.connect(database) as connection:
        connection.autocommit = False
        while not stop.wait(arguments.pause):
            try:
                for _ in range(chance.randrange(1, 6)):
                    connection.execute(_statement(chance, chance.choice(tables), number).encode())
                if chance.random() < 0.1:
                    connection.rollback()
                connection.commit()
                written["transactions"] += 1
            except (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation):
                connection.rollback()


def _statement(chance: random.Random, table: str, writer: int) -> str:
    row, fresh = chance.randrange(_ROWS), 1000 + chance.randrange(10**9)
    kind = chance.choices(("insert", "update", "delete", "key", "truncate"), (4, 6, 3, 1, 0.005))[0]
    return {
        "insert": f"insert into {table} values ({fresh}, {writer}, repeat('x', {row}))",
        "update": f"update {table} set n = n + 1, v = v || '.' where id % {_ROWS} = {row}",
        "delete": f"delete from {table} where id % {_ROWS} = {row} and id > 1000",
        "key": f"update {table} set id = {fresh} where id = {row}",
        "truncate": f"truncate {table}",
    }[kind]


if __name__ == "__main__":
    main()
