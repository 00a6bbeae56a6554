"""``wal2lake reconcile``: compares lake tables with their source, and repairs rows that differ."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import click
from rich.console import Console

from cdc_core.cli.arguments import ConnectorFile, TableType, config_argument
from cdc_core.cli.exits import DONE, FAILED, WRONG_USE, describe
from cdc_core.errors import CdcError
from cdc_core.lsn import Lsn, lsn_or_time
from cdc_core.schema import TableId

if TYPE_CHECKING:
    from cdc_core.lake import KeyList
    from cdc_core.reconcile import ReconcileReport, TableResult
    from cdc_core.schema import Key

# As after a usage error: 1 means that rows differ.
_NOT_COMPARED = WRONG_USE
_SHOWN = 10


class SinceType(click.ParamType[Lsn | datetime | str]):
    """An LSN, a time, or ``last``."""

    name = "LSN|TIME|last"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Lsn | datetime | str:
        """Text such as 16/B374D848, 2026-01-31T12:00:00Z (without a zone: UTC), or last."""
        if not isinstance(value, str) or value == "last":
            return cast("Lsn | datetime | str", value)
        try:
            return lsn_or_time(value)
        except ValueError:
            self.fail(f"expected an LSN, a time such as 2026-01-31T12:00:00Z, or last, found {value!r}", param, ctx)


@click.command("reconcile", short_help="Compare lake tables with their source.")
@config_argument
@click.argument("tables", type=TableType(), nargs=-1, metavar="[TABLE]...")
@click.option("--repair", is_flag=True, help="Read the rows that differ again, and write them to the lake.")
@click.option("--dry-run", is_flag=True, help="With --repair: only show what would be written and deleted.")
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    metavar="N",
    help="Compare N ranges of about 10,000 rows of each table, chosen at random on both sides.",
)
@click.option(
    "--since",
    type=SinceType(),
    help="Compare only rows that changed after this LSN, since this time, or since the last comparison: last.",
)
@click.option("--resume", is_flag=True, help="Continue a comparison that was killed: keep the results it had.")
@click.option("--limit", type=click.IntRange(min=0), default=1000, show_default=True, help="Keys named of each kind.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    config: ConnectorFile,
    tables: tuple[TableId, ...],
    repair: bool,
    dry_run: bool,
    sample: int | None,
    since: Lsn | datetime | str | None,
    resume: bool,
    limit: int,
    as_json: bool,
) -> int:
    """Compare each lake table with its source at one LSN, while both may keep moving.

    Names the keys of rows that are missing in the lake, that only the lake has, and that have other values there; no
    value is printed. Without TABLE (schema.table) all captured tables are compared.

    With --repair the rows that differ are read again from the source and written; rows that only the lake has are
    deleted according to the table's delete mode. A run may stream meanwhile.

    Exit codes: 0 if everything that was compared is equal, 1 if rows differ (with --repair: if some still do), 2 if a
    table could not be read.
    """
    if dry_run and not repair:
        raise click.UsageError("--dry-run shows what --repair would do: give both.")
    if sample is not None and since is not None:
        raise click.UsageError("--sample and --since cannot be combined.")
    console = Console(stderr=as_json, soft_wrap=True)
    try:
        connector = config.open()
        say = None if as_json else line(console, dry_run)
        report = connector.reconcile(tables or None, limit, repair and not dry_run, say, sample, since, resume)
    except CdcError as error:
        click.echo(f"wal2lake: {describe(error)}", err=True)
        return _NOT_COMPARED
    if as_json:
        click.echo(json.dumps(report.to_plain()))
    else:
        console.print(total(report), highlight=False, markup=False)
    return exit_code(report)


def total(report: ReconcileReport) -> str:
    """The comparison as a whole, in one line. Rows of tables without a key that differ are counted, too."""
    compared = [result for result in report.tables if result.rows is not None]
    left_out = len(report.tables) - len(compared)
    differing = [result for result in compared if result.found.count]
    rows = sum(result.rows or 0 for result in compared)
    text = f"at {report.lsn}: {rows:,} rows of {_tables(len(compared))} compared, "
    if differing:
        text += f"{sum(result.found.count for result in differing):,} differ, in {_tables(len(differing))}"
    else:
        text += "no row differs" if report.is_equal else "no row differs, but a changelog does"
    repaired = sum(result.repaired for result in compared)
    return text + (f"; {repaired:,} repaired" * bool(repaired)) + (f"; {_tables(left_out)} left out" * bool(left_out))


def _tables(count: int) -> str:
    return "1 table" if count == 1 else f"{count} tables"


def exit_code(report: ReconcileReport) -> int:
    """Return 1 if rows differ, else 2 if a table could not be read, else 0."""
    if not report.is_equal:
        return FAILED
    return _NOT_COMPARED if report.has_errors else DONE


def line(console: Console, dry_run: bool) -> Callable[[TableResult], None]:
    """Return what prints the result of one table. ``dry_run``: also what a repair would do."""

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    def printed(result: TableResult) -> None:
        if result.rows is None:
            say(f"{result.table}: left out: {result.reason}")
            return
        differences = result.found
        repaired = f", {result.repaired:,} rows repaired" if result.repaired else ""
        say(f"{result.table}: {result.state.value}, {result.rows:,} rows compared{repaired}")
        for name, keys in (
            ("missing", differences.missing),
            ("extra", differences.extra),
            ("changed", differences.changed),
        ):
            _say_keys(say, name, keys)
        _say_keys(say, "in quarantine", differences.quarantined)
        _say_keys(say, "not compared, because a change is under way", differences.undecided)
        if result.changelog is not None and not result.changelog.is_whole:
            if result.changelog.doubled:
                say(f"     the changelog has {result.changelog.doubled:,} positions twice")
            _say_keys(say, "rows of the lake are not what the changelog leads to", result.changelog.keys)
            if result.changelog.versions is not None:
                _say_keys(say, "keys have wrong versions", result.changelog.versions)
        if result.changelog is not None and result.changelog.removed:
            say(f"     {result.changelog.removed:,} of its oldest versions are no longer in the lake")
        if result.columns_left_out:
            say(f"     columns not compared: {', '.join(result.columns_left_out)}")

        for row in result.unrepaired[:_SHOWN]:
            say(f"     not repaired: {_shown(row.key) or 'its rows'}: {row.reason}")
        if dry_run and differences.count:
            written = differences.missing.count + differences.changed.count
            say(f"     a repair would read and write {written:,} rows, and delete or end {differences.extra.count:,}")

    return printed


def _shown(key: Key) -> str:
    return ", ".join("NULL" if text is None else text or '""' for text in key)


def _say_keys(say: Callable[[str], None], name: str, keys: KeyList) -> None:
    if not keys.count:
        return
    if not any(keys.keys):  # rows of a table without a key
        say(f"     {keys.count:,} {name}")
        return
    shown = "; ".join(_shown(key) for key in keys.keys[:_SHOWN])
    say(f"     {keys.count:,} {name}: {shown}{' …' if keys.count > _SHOWN else ''}")
