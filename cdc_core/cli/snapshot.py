"""``wal2lake snapshot``: takes a snapshot of tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console

from cdc_core.assemble import Connector
from cdc_core.cli.arguments import ConnectorFile, TableType, config_argument
from cdc_core.cli.exits import DONE, FAILED, stop_requests
from cdc_core.cli.logs import is_json, log_options, say, set_up
from cdc_core.cli.progress import snapshot_progress
from cdc_core.snapshot import IncrementalProgress, RangeReport, SnapshotProgress


@click.command("snapshot", short_help="Read tables into the lake.")
@config_argument
@click.argument("names", nargs=-1, metavar="[SCHEMA.TABLE]...")
@click.option(
    "--incremental",
    is_flag=True,
    help="Read them in ranges of their keys while the stream continues; nothing is replaced. A TABLE may be one of its "
    "ranges: public.orders|0007.",
)
@log_options
def command(
    config: ConnectorFile, names: tuple[str, ...], incremental: bool, log_format: str | None, verbose: bool
) -> int:
    """Read tables (schema.table) into the lake at one consistent point.

    Default: all captured tables of snapshot.include.collection.list; none the first time if snapshot.mode reads no
    rows.
    Existing lake tables are replaced by the current rows of the source; streaming continues exactly from there.

    With --incremental the rows are added to those in the lake, once the stream has passed them, by the streaming
    run; if none is streaming, by this command. Default: all tables of snapshot.include.collection.list that have a key.
    """
    console = Console(stderr=True, soft_wrap=True)
    set_up(log_format, verbose=verbose)
    connector = config.open()
    set_up(log_format, connector.config.observe.log_format, verbose=verbose)
    if incremental:
        return _incremental(console, connector, names)
    tables = [TableType()(name) for name in names]
    with snapshot_progress(console) as on_progress:
        reports = connector.snapshot(tables or None, on_progress=on_progress)
    for report in reports:
        before = f", {report.rows_kept:,} of them read by an earlier run" if report.rows_kept else ""
        aside = f"; {report.refused:,} rows that a rule refuses are in quarantine" if report.refused else ""
        told = f"{report.table}: {report.rows:,} rows as of {report.lsn} in {report.seconds:.1f} s{before}{aside}"
        facts: dict[str, Any] = {"rows": report.rows, "refused": report.refused, "lsn": str(report.lsn)}
        say(told, event="table read", table=str(report.table), **facts)
    return DONE


def _incremental(console: Console, connector: Connector, names: Sequence[str]) -> int:
    """Read ranges; print the result of each. Fails if one is not in its lake table."""
    with stop_requests() as stop, snapshot_progress(console) as bars:

        def show(progress: IncrementalProgress) -> None:
            if console.is_terminal and not is_json():
                bars(SnapshotProgress(progress.table, progress.rows, progress.rows_expected, False))

        reports = connector.incremental_snapshot(
            names or None, on_progress=show, should_stop=stop.is_set, on_range=_say_range
        )
    left = [report for report in reports if not report.is_applied]
    for report in left:
        _say_range(report)
    return FAILED if left else DONE


def _say_range(report: RangeReport) -> None:
    key = report.range
    done = f"{report.rows:,} rows in the lake table, read in {report.seconds:.1f} s"
    what = done if report.is_applied else f"not in the lake table: {report.reason}"
    facts: dict[str, Any] = {"rows": report.rows, "number": key.number, "ranges": key.count}
    event = "range written" if report.is_applied else "range not written"
    say(f"{key.name} of {key.count}: {what}", event=event, table=str(key.table), **facts)
