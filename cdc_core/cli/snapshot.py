"""``wal2lake snapshot``: takes a snapshot of tables."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from cdc_core.cli.arguments import ConnectorFile, TableType, config_argument
from cdc_core.cli.exits import DONE
from cdc_core.cli.logs import log_options, say, set_up
from cdc_core.cli.progress import snapshot_progress
from cdc_core.schema.table import TableId


@click.command("snapshot")
@config_argument
@click.argument("tables", nargs=-1, type=TableType())
@log_options
def command(config: ConnectorFile, tables: tuple[TableId, ...], log_format: str | None, verbose: bool) -> int:
    """Read tables (schema.table) into the lake at one consistent point.

    Default: all captured tables of snapshot.include.collection.list; none the first time if snapshot.mode reads no
    rows.
    Existing lake tables are replaced by the current rows of the source; streaming continues exactly from there.
    """
    console = Console(stderr=True, soft_wrap=True)
    set_up(log_format, verbose=verbose)
    connector = config.open()
    set_up(log_format, connector.config.observe.log_format, verbose=verbose)
    with snapshot_progress(console) as on_progress:
        reports = connector.snapshot(tables or None, on_progress=on_progress)
    for report in reports:
        before = f", {report.rows_kept:,} of them read by an earlier run" if report.rows_kept else ""
        aside = f"; {report.refused:,} rows that a rule refuses are in quarantine" if report.refused else ""
        told = f"{report.table}: {report.rows:,} rows as of {report.lsn} in {report.seconds:.1f} s{before}{aside}"
        facts: dict[str, Any] = {"rows": report.rows, "refused": report.refused, "lsn": str(report.lsn)}
        say(told, event="table read", table=str(report.table), **facts)
    return DONE
