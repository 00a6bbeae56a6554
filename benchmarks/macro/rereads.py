"""Many small tables that ALTER TABLE has rewritten, re-read by a run, beside a snapshot of the same tables.

    python -m benchmarks.macro.rereads [--tables 40] [--turns 3]

In each turn every table is rewritten, and ``wal2lake run --until-idle 0.2`` brings the lake to the source; then
``wal2lake snapshot`` reads the same tables. Both are commands with the start of Java and Spark; the ratio is formed
within the turn. Every table is compared at the end of each turn.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.macro.measured import SECONDS, measured
from benchmarks.macro.snapshot import spread
from benchmarks.server import bench_server
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, lake_settings, write_properties

_ROWS = 10
_TYPES = ("varchar(40)", "text")


def turn(server: Cluster, database: str, file: Path, names: list[TableId], type_name: str) -> tuple[float, float]:
    """Return the seconds of the run and of the snapshot. Raises RuntimeError if the lake differs."""
    for name in names:
        server.execute(database, f"alter table {name.table} alter v type {type_name} using 'y' || left(v, 9)")
        server.execute(database, f"update {name.table} set v = 'z' where id = 1")
    run = measured(server, "run", str(file), "--until-idle", "0.2", "--max-seconds", str(SECONDS // 2))
    differing = difference(file, names)
    if differing:
        raise RuntimeError(f"the lake differs: {differing[0]}")
    return run.seconds, measured(server, "snapshot", str(file)).seconds


def main() -> None:
    """Measure, and print a row for the run and one for the snapshot."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--tables", type=int, default=40)
    asked.add_argument("--turns", type=int, default=3)
    given = asked.parse_args()
    names = [TableId("public", f"t{number}") for number in range(given.tables)]
    with bench_server() as (server, folder):
        database = server.database("rereads")
        for name in names:
            server.execute(database, f"create table {name.table} (id int primary key, v text)")
            server.execute(database, f"insert into {name.table} select g, 'x' from generate_series(1, {_ROWS}) g")
        settings = {"schema.include.list": "public", **lake_settings(folder)}
        file = write_properties(folder / "rereads.properties", server.properties(database, **settings))
        measured(server, "snapshot", str(file))
        types = [_TYPES[number % len(_TYPES)] for number in range(given.turns)]
        turns = [turn(server, database, file, names, type_name) for type_name in types]
    print(f"\n{given.tables} tables of {_ROWS} rows, {given.turns} turns\n")
    print("| | seconds: median (min … max) | x snapshot: median (min … max) |\n|---|---|---|")
    for place, what in enumerate(("re-reads", "snapshot")):
        seconds, ratios = [one[place] for one in turns], [one[place] / one[1] for one in turns]
        print(f"| {what} | {spread(seconds, 1)} | {spread(ratios, 1)} |")


if __name__ == "__main__":
    main()
