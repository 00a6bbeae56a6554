"""``wal2lake demo``: the whole product on this machine."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from cdc_core.cli.exits import DONE, FAILED, stop_requests


@click.command("demo", short_help="Run a demo with an embedded PostgreSQL.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".wal2lake/demo"),
    show_default=True,
    help="Folder of the demo's files; a second demo in the same folder resumes where the first stopped.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    help="Run unattended for this many seconds, then compare every lake table with its source; exit 0 only if "
    "all are equal.",
)
@click.option("--rate", type=click.IntRange(1, 5000), default=200, show_default=True, help="Changes per second.")
@click.option(
    "--sinks",
    type=click.Choice(["lake", "lake,kafka"]),
    default="lake",
    show_default=True,
    help="Where changes are written; with kafka a broker is started, whose jars are downloaded once (44 MB).",
)
def command(folder: Path, seconds: float | None, rate: int, sinks: str) -> int:
    """Run a demo with an embedded PostgreSQL: a sample workload, snapshots by a backfill, streaming by a sensor.

    Prints the URL of Dagster's UI and, every few seconds, the row counts of source and lake. Ctrl-C stops everything.
    """
    from cdc_core.demo import Broker, Demo, DemoHooks, DemoState

    console = Console(soft_wrap=True)

    def show(state: DemoState) -> None:
        lag = "no change is in the lake yet"
        if state.lag_seconds is not None:
            lag = f"the lake is {state.lag_seconds:.1f} s behind"
        if state.lag_bytes is not None:
            lag += f", the slot {state.lag_bytes:,} bytes of WAL"
        table = Table("table", "source rows", "lake rows", box=None, pad_edge=False)
        for name, rows in state.source_rows.items():
            in_lake = state.lake_rows[name]
            table.add_row(str(name), f"{rows:,}", "-" if in_lake is None else f"{in_lake:,}")
        console.print(f"\n{state.seconds:5.0f} s  {state.changes:,} changes made, {lag}", highlight=False)
        console.print(table)

    with stop_requests() as stop:
        hooks = DemoHooks(lambda text: console.print(f"● {text}", highlight=False), show, stop.is_set)
        verdict = Demo(folder, hooks, rate, [Broker] if "kafka" in sinks else []).run(seconds)
    if not verdict:
        console.print("● stopped; all processes of the demo have ended", highlight=False)
        return DONE
    for table in verdict:
        result = "equal" if table.is_equal else f"DIFFERS: {table.missing} missing, {table.extra} extra"
        console.print(
            f"{table.table!s:20} {table.source_rows:8,} rows in the source, {table.lake_rows:8,} in the lake: {result}",
            highlight=False,
        )
    is_equal = all(table.is_equal for table in verdict)
    console.print("● every table is equal, row by row" if is_equal else "● the lake differs from the source")
    return DONE if is_equal else FAILED
