"""``wal2lake status``: the slot, and each table's source beside its lake table."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from cdc_core.assemble import Connector
from cdc_core.cli.arguments import config_argument
from cdc_core.cli.exits import DONE
from cdc_core.engine.reports import Status


@click.command("status")
@config_argument
@click.option("--rows", is_flag=True, help="Count the rows of both sides too (starts Spark).")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object, for programs.")
def command(config: Path, rows: bool, as_json: bool) -> int:
    """Show how far the slot, the changelogs and the lake tables are."""
    status = Connector.from_file(config, needs_lake=False).status(count_rows=rows)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(status), default=str))
    else:
        _print(Console(soft_wrap=True), status)
    return DONE


def _print(console: Console, status: Status) -> None:
    state = "in use" if status.slot_active else "waiting" if status.slot_exists else "missing"
    console.print(f"slot {status.slot}: {state}, wal_status {status.wal_status or '-'}", highlight=False)
    if status.lag_bytes is not None:
        console.print(
            f"confirmed {status.confirmed_lsn}, server at {status.wal_end_lsn}, {status.lag_bytes:,} bytes behind",
            highlight=False,
        )
    table = Table("table", "key", "snapshot at", "changelog to", "lake to", "rows: source", "lake", box=None)
    for row in status.tables:
        cells = (row.snapshot_lsn, row.changelog_lsn, row.lake_lsn, row.source_rows, row.lake_rows)
        table.add_row(
            str(row.table), ", ".join(row.key) or "none", *("-" if cell is None else str(cell) for cell in cells)
        )
    console.print(table)
