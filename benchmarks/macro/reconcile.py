"""``wal2lake reconcile`` beside ``COPY … TO STDOUT`` of the same table into /dev/null in one run.

    python -m benchmarks.macro.reconcile                      # 10 M rows × 10 columns; 100 tables of 10,000 rows
    python -m benchmarks.macro.reconcile --rows 1000000 --only large

Each turn takes COPY (psql, over TCP), the command on a lake that is equal, and the command with three wrong rows and
``--repair``; a ratio is formed within its turn. The command is measured from its start to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from deltalake import DeltaTable as OtherTable

from benchmarks.macro.snapshot import PROGRAM, Bench, filled, keep, spread
from benchmarks.server import bench_server
from cdc_core.lake.compare.lake_side import LakeSide
from cdc_core.lake.compare.row_hash import RowHash
from cdc_core.lake.compare.rows import Compared
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connection import connect
from cdc_core.postgres.rows.copy_out import copied, own_rows_sql
from cdc_core.schema.table import TableId
from cdc_core.selection.options import SelectionOptions
from cdc_core.types.options import TypeOptions
from tests.support.postgres_options import options_for

_SECONDS = 3600
_CPU_ROWS = 1_000_000


def main() -> None:
    """Measure and print tables; write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=3, help="counted turns")
    parser.add_argument("--warm-up", type=int, default=1, help="turns before, not counted")
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--table-rows", type=int, default=10_000)
    parser.add_argument("--only", default="large,small,cpu", help="of large, small, cpu")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a connector property")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"cores": os.cpu_count()}
    with bench_server(shared_buffers="512MB") as (cluster, folder):
        bench = Bench(cluster, folder, dict(entry.split("=", 1) for entry in arguments.set))
        if "large" in arguments.only:
            figures["large"] = _large(bench, arguments)
            _print_large(figures["large"])
        if "cpu" in arguments.only:
            figures["cpu"] = _cpu(bench, min(arguments.rows, _CPU_ROWS))
            print("\nCPU microseconds a row:", figures["cpu"])
        if "small" in arguments.only:
            figures["small"] = _small(bench, arguments)
            values = figures["small"]["reconcile"]
            print(f"\n{arguments.tables} tables × {arguments.table_rows:,} rows: {spread(values, 1)} s")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


def _large(bench: Bench, arguments: argparse.Namespace) -> dict[str, Any]:
    database = filled(bench, arguments.rows, "large")
    bench.warm(database, arguments.rows)
    seconds: dict[str, list[float]] = {"COPY": [], "reconcile": [], "repair": []}
    lake = next((bench.folder / database / "lake").glob("*/public/load"))
    for turn in range(arguments.warm_up + arguments.runs):
        taken = {"COPY": bench.copy(database), "reconcile": _reconcile(bench, database, 0)}
        OtherTable(str(lake)).delete(f"id in (1, 2, {arguments.rows})")
        taken["repair"] = _reconcile(bench, database, 0, "--repair")
        keep(seconds, taken, turn, arguments.warm_up)
    return {"rows": arguments.rows, "seconds": seconds}


def _small(bench: Bench, arguments: argparse.Namespace) -> dict[str, Any]:
    database, rows = filled(bench, arguments.table_rows, "small"), arguments.table_rows
    for number in range(arguments.tables - 1):
        name = f"t{number:03}"
        bench.cluster.execute(database, f"create table {name} (like load including all); insert into {name} table load")
    bench.cluster.execute(database, "vacuum analyze")
    bench.warm(database, rows * arguments.tables)
    seconds: dict[str, list[float]] = {"reconcile": []}
    for turn in range(arguments.warm_up + arguments.runs):
        keep(seconds, {"reconcile": _reconcile(bench, database, 0)}, turn, arguments.warm_up)
    return seconds


def _cpu(bench: Bench, rows: int) -> dict[str, float]:
    """CPU microseconds a row, which a busy machine changes little: of the server for both, and of the lake's side."""
    database = filled(bench, rows, "cpu")
    bench.warm(database, rows)
    lake = DeltaTable.open(str(next((bench.folder / database / "lake").glob("*/public/load"))))
    assert lake is not None
    found: dict[str, float] = {}
    with connect(options_for(bench.cluster, database)) as connection:
        table = Catalog(connection).current(TableId("public", "load"))
        assert table is not None
        typer = TypingPlan(TypeOptions(), SelectionOptions()).typer(table)
        compared = Compared.of(typer.read_schema, lake.schema, table.row_key)
        hashing = RowHash.of(typer, compared)
        assert hashing is not None
        select = own_rows_sql(table, typer.read_columns)
        process = Path(f"/proc/{connection.info.backend_pid}/schedstat")
        for name, statement in (("COPY, server", select), ("hashes, server", hashing.select(select))):
            sum(map(len, copied(connection, statement)))
            before = int(process.read_text().split()[0])
            sum(map(len, copied(connection, statement)))
            found[name] = round((int(process.read_text().split()[0]) - before) / 1000 / rows, 2)
    began = time.process_time()
    LakeSide(lake, compared, hashing).digests()
    return {**found, "hashes, lake": round((time.process_time() - began) * 1_000_000 / rows, 2)}


def _reconcile(bench: Bench, database: str, code: int, *options: str) -> float:
    """Seconds of the command, which must end with the exit code."""
    began = time.monotonic()
    file = bench.folder / database / "connector.properties"
    done = subprocess.run(
        [PROGRAM, "reconcile", file, "--json", *options], capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode != code:
        raise SystemExit(f"wal2lake reconcile ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return time.monotonic() - began


def _print_large(large: dict[str, Any]) -> None:
    seconds, base = large["seconds"], large["seconds"]["COPY"]
    print(f"\n{large['rows']:,} rows × 10 columns; {len(base)} turns")
    print("| | seconds: median (min … max) | × COPY: median (min … max) |\n|---|---|---|")
    for name in ("COPY", "reconcile", "repair"):
        ratios = [value / one for value, one in zip(seconds[name], base, strict=True)]
        print(f"| {name} | {spread(seconds[name], 1)} | {spread(ratios, 2)} |")


if __name__ == "__main__":
    main()
