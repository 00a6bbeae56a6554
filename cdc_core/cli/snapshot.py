"""``wal2lake snapshot``: read tables again, now."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from cdc_core.assemble import Connector
from cdc_core.cli.arguments import TableType, config_argument
from cdc_core.cli.exits import DONE
from cdc_core.cli.progress import snapshot_progress
from cdc_core.schema.table import TableId


@click.command("snapshot")
@config_argument
@click.argument("tables", nargs=-1, type=TableType())
def command(config: Path, tables: tuple[TableId, ...]) -> int:
    """Read TABLES (schema.table; all captured ones when none is named) into the lake at one consistent point.

    A table that the lake has already is replaced by what the source holds now; the stream goes on from there exactly.
    """
    console = Console(stderr=True, soft_wrap=True)
    connector = Connector.from_file(config)
    with snapshot_progress(console) as on_progress:
        reports = connector.snapshot(tables or None, on_progress=on_progress)
    for report in reports:
        console.print(
            f"{report.table}: {report.rows:,} rows as of {report.lsn} in {report.seconds:.1f} s", highlight=False
        )
    return DONE
