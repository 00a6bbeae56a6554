"""``wal2lake replay``: let a paused table go on."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from cdc_core.assemble import Connector
from cdc_core.cli.arguments import TableType, config_argument
from cdc_core.cli.exits import DONE
from cdc_core.cli.progress import snapshot_progress
from cdc_core.schema.table import TableId


@click.command("replay")
@config_argument
@click.argument("table", type=TableType())
def command(config: Path, table: TableId) -> int:
    """Bring the changes of a paused TABLE (schema.table) to its lake table, once what it was paused for is mended.

    wal2lake status shows which tables are paused, why, and what to do. The changes wait in the table's changelog; they
    are merged in order, each once. Where the lake table can no longer be brought up to them, the table is read again
    first.
    """
    console = Console(stderr=True, soft_wrap=True)
    connector = Connector.from_file(config)
    with snapshot_progress(console) as on_progress:
        done = connector.replay(table, on_progress=on_progress)
    if done.snapshot is not None:
        console.print(f"{table}: {done.snapshot.rows:,} rows read again as of {done.snapshot.lsn}", highlight=False)
    console.print(f"{table}: {done.events:,} changes merged", highlight=False)
    return DONE
