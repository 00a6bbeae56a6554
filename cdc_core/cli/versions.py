"""``wal2lake versions``: the Delta versions of all tables at one LSN of the source."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from cdc_core.cli.arguments import ConnectorFile, TableType, config_argument
from cdc_core.cli.exits import DONE
from cdc_core.lsn import Lsn, lsn_or_time
from cdc_core.schema import TableId

if TYPE_CHECKING:
    from cdc_core.lake import Cut


class PlaceType(click.ParamType[Lsn | datetime]):
    """An LSN, or a time in ISO 8601; one without an offset is UTC."""

    name = "LSN|TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Lsn | datetime:
        """Text such as 16/B374D848 or 2026-11-21T12:00:00Z."""
        try:
            return lsn_or_time(value)
        except ValueError as error:
            self.fail(str(error))


@click.command("versions", short_help="Show the Delta versions of one LSN.")
@config_argument
@click.argument("tables", nargs=-1, type=TableType(), metavar="[SCHEMA.TABLE]...")
@click.option(
    "--at",
    type=PlaceType(),
    help="Print the newest round at or before this LSN or commit time. Default: the newest round.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(config: ConnectorFile, tables: tuple[TableId, ...], at: Lsn | datetime | None, as_json: bool) -> int:
    """Show the Delta version of each table that corresponds to one LSN of the source.

    Tables read at these versions are consistent with each other: they contain every transaction that committed up to
    the LSN, and no other. A table that was paused, re-read or behind in that round has no version; this is an error if
    the table is named. docs/reading.md shows how to read tables at these versions.
    """
    cut = config.open().versions(at, tables)
    if as_json:
        click.echo(json.dumps(_plain(cut)))
    else:
        _print(Console(soft_wrap=True), cut)
    return DONE


def _plain(cut: Cut) -> dict[str, Any]:
    return {
        "lsn": str(cut.lsn),
        "epoch": cut.epoch,
        "committed_at": None if cut.committed_at is None else cut.committed_at.isoformat(),
        "recorded_at": cut.recorded_at.isoformat(),
        "tables": [
            {"table": str(table.table), "version": table.version, "state": table.state_text, "path": table.path}
            for table in cut.tables
        ],
    }


def _print(console: Console, cut: Cut) -> None:
    at = "an unknown time" if cut.committed_at is None else f"{cut.committed_at:%Y-%m-%d %H:%M:%S.%f} UTC"
    epoch = f" of epoch {cut.epoch}" if cut.epoch else ""
    console.print(f"round at {cut.lsn}{epoch}, last commit at {at}", highlight=False)
    table = Table("table", "version", "state", box=None)
    for one in cut.tables:
        table.add_row(str(one.table), "-" if one.version is None else str(one.version), one.state_text)
    console.print(table)
