"""``wal2lake check``: checks the configuration, the server and the lake folder."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from cdc_core.assemble import Connector
from cdc_core.cli.arguments import config_argument
from cdc_core.cli.exits import DONE, FAILED


@click.command("check")
@config_argument
@click.option("--explain", is_flag=True, help="Print every property in the file and how wal2lake uses it.")
@click.option(
    "--all", "everything", is_flag=True, help="With --explain: print all properties, not only those in the file."
)
def command(config: Path, explain: bool, everything: bool) -> int:
    """Check CONFIG and its server, and print what is missing and how to correct it. Changes nothing."""
    console = Console(soft_wrap=True)
    connector = Connector.from_file(config, needs_lake=False)
    for warning in connector.warnings:
        console.print(f"[yellow]warning[/] {warning}", highlight=False)
    if explain:
        table = Table("property", "value", "status", "what it does", box=None, pad_edge=False)
        for row in connector.explain(everything):
            table.add_row(row.name, row.value, row.status, row.text)
        console.print(table)
    findings = connector.check()
    for finding in findings:
        mark = "[green]ok  [/]" if finding.ok else "[red]FAIL[/]" if finding.is_error else "[yellow]warn[/]"
        console.print(f"{mark} {finding.check}: {finding.found}", highlight=False)
        if not finding.ok and finding.remedy:
            console.print(f"     → {finding.remedy}", highlight=False)
    return FAILED if any(not finding.ok and finding.is_error for finding in findings) else DONE
