"""``wal2lake check``: checks the configuration, the server and the lake folder."""

from __future__ import annotations

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cdc_core.cli.arguments import ConnectorFile, config_argument
from cdc_core.cli.exits import DONE, FAILED
from cdc_core.postgres import Finding, is_unreached, left_out, script, uncorrected


@click.command("check", short_help="Check the configuration, the server and the lake.")
@config_argument
@click.option("--explain", is_flag=True, help="Print every property in the file and how wal2lake uses it.")
@click.option("--sql", "as_sql", is_flag=True, help="Print a script for psql with everything that is missing.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="With --explain: print all properties, not only those in the file. With --sql: print what is there, too, as "
    "comments.",
)
@click.option(
    "--as",
    "administrator",
    metavar="CONNECTION",
    help="An administrator's connection, as postgresql://USER@HOST or 'user=USER', to ask the server where the role of "
    "CONFIG cannot connect yet. Host and port are CONFIG's, user and password those of PGUSER, PGPASSWORD and the "
    "password file, unless it names them.",
)
def command(config: ConnectorFile, explain: bool, as_sql: bool, everything: bool, administrator: str | None) -> int:
    """Check CONFIG and its server, and print what is missing and how to correct it. Changes nothing.

    Statements are complete: names are quoted, and they can be pasted into psql. With --sql only the script is printed,
    and the exit code is 1 if something is missing that no statement in it corrects. Where the role cannot connect
    yet, the script makes it; with --as it has the grants and the publication of all captured tables, too. Without,
    tables that only a pattern names are left out, which a comment says: the exit code is 1.
    """
    if as_sql and explain:
        raise click.UsageError("--sql and --explain cannot be combined.")
    console = Console(soft_wrap=True, stderr=as_sql)
    connector = config.open(needs_lake=False)
    for warning in connector.warnings:
        console.print(f"[yellow]warning[/] {escape(warning)}", highlight=False)
    if explain:
        table = Table("property", "value", "status", "what it does", box=None, pad_edge=False)
        for row in connector.explain(everything):
            table.add_row(escape(row.name), escape(row.value), row.status, escape(row.text))
        console.print(table)
    findings = connector.check(administrator)
    failed = [finding for finding in findings if not finding.ok and finding.is_error]
    if as_sql:
        click.echo(
            script(connector.config.postgres, connector.config.selection, findings, everything=everything), nl=False
        )
        is_partial = is_unreached(findings) and (administrator is not None or left_out(connector.config.selection))
        return FAILED if uncorrected(findings) or is_partial else DONE
    for finding in findings:
        _print(console, finding)
    if any(finding.sql and not finding.ok for finding in findings):
        console.print(f"These statements as one script: wal2lake check --sql {escape(str(config))}", highlight=False)
    return FAILED if failed else DONE


def _print(console: Console, finding: Finding) -> None:
    mark = "[green]ok  [/]" if finding.ok else "[red]FAIL[/]" if finding.is_error else "[yellow]warn[/]"
    console.print(f"{mark} {finding.check}: {escape(finding.found)}", highlight=False)
    if finding.ok:
        return
    if finding.remedy:
        console.print(f"     → {escape(finding.remedy)}", highlight=False)
    for statement in finding.sql:
        console.print(f"       {statement}", highlight=False, markup=False)
