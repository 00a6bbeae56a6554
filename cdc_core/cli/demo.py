"""``wal2lake demo``: all of it, on this machine."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from cdc_core.cli.exits import DONE, FAILED, stop_requests


@click.command("demo")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".wal2lake/demo"),
    show_default=True,
    help="Where everything lies; a second demo in it goes on where the first stopped.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    help="Run so long unattended, then compare every lake table with its source and exit 0 only if all are equal.",
)
@click.option("--rate", type=click.IntRange(1, 5000), default=200, show_default=True, help="Changes a second.")
def command(folder: Path, seconds: float | None, rate: int) -> int:
    """See the whole product on an embedded PostgreSQL: a busy shop, snapshots by a backfill, streaming by the sensor.

    Prints the address of Dagster's UI and, every few seconds, both sides' rows. Ctrl-C stops everything.
    """
    from cdc_core.demo.run import Demo, DemoHooks, Look

    console = Console(soft_wrap=True)

    def show(look: Look) -> None:
        lag = "no slot yet" if look.lag_bytes is None else f"{look.lag_bytes:,} bytes behind"
        lag += "" if look.lag_seconds is None else f", {look.lag_seconds:.1f} s"
        table = Table("table", "source rows", "lake rows", box=None, pad_edge=False)
        for name, rows in look.source_rows.items():
            in_lake = look.lake_rows[name]
            table.add_row(str(name), f"{rows:,}", "-" if in_lake is None else f"{in_lake:,}")
        console.print(f"\n{look.seconds:5.0f} s  {look.changes:,} changes made, {lag}", highlight=False)
        console.print(table)

    with stop_requests() as stop:
        hooks = DemoHooks(lambda text: console.print(f"● {text}", highlight=False), show, stop.is_set)
        verdict = Demo(folder, hooks, rate).run(seconds)
    if not verdict:
        console.print("● stopped; everything this demo started has ended", highlight=False)
        return DONE
    for one in verdict:
        result = "equal" if one.is_equal else f"DIFFERS: {one.missing} missing, {one.extra} extra"
        console.print(
            f"{one.table!s:20} {one.source_rows:8,} rows in the source, {one.lake_rows:8,} in the lake: {result}",
            highlight=False,
        )
    is_equal = all(one.is_equal for one in verdict)
    console.print("● every table is equal, row by row" if is_equal else "● the lake differs from the source")
    return DONE if is_equal else FAILED
