"""``wal2lake maintain``: OPTIMIZE and VACUUM."""

from __future__ import annotations

import dataclasses
import json

import click
from rich.console import Console

from cdc_core.cli.arguments import ConnectorFile, TableType, config_argument
from cdc_core.cli.exits import DONE
from cdc_core.lake import MaintainReport
from cdc_core.schema import TableId


@click.command("maintain", short_help="Compact small files and remove old ones.")
@config_argument
@click.argument("tables", nargs=-1, type=TableType(), metavar="[SCHEMA.TABLE]...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per Delta table.")
def command(config: ConnectorFile, tables: tuple[TableId, ...], as_json: bool) -> int:
    """Compact small files of the lake's tables (OPTIMIZE) and remove unreferenced files (VACUUM).

    Rounds compact recent files automatically; this command does the rest and is meant for a schedule. It can run
    concurrently with wal2lake run: conflicting commits are retried.
    """
    console = Console(soft_wrap=True)
    maintained = []

    def report_table(report: MaintainReport) -> None:
        maintained.append(report.table)
        name = report.kind if report.table is None else f"{report.table} {report.kind}"
        done = report.done
        if as_json:
            plain = dataclasses.asdict(done)
            click.echo(json.dumps({"table": report.table and str(report.table), "kind": report.kind, **plain}))
            return
        console.print(
            f"{name}: {done.files_before:,} → {done.files_after:,} files, "
            f"{done.bytes_before:,} → {done.bytes_after:,} bytes, {done.removed:,} removed from storage",
            highlight=False,
        )

    config.open().maintain(list(tables) or None, on_table=report_table)
    if not maintained:
        click.echo("There is nothing to maintain: the lake has no tables of this connector.", err=True)
    return DONE
