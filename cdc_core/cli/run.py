"""``wal2lake run``: takes the snapshot that snapshot.mode requires, then streams."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from cdc_core.assemble import Connector
from cdc_core.cli.arguments import config_argument, max_seconds, until_idle, until_lsn
from cdc_core.cli.exits import DONE, FAILED, stop_requests
from cdc_core.cli.progress import log_snapshot_notifications, snapshot_progress
from cdc_core.engine.reports import RoundReport, Until
from cdc_core.lsn import Lsn


@click.command("run")
@config_argument
@until_lsn
@until_idle
@max_seconds
def command(config: Path, until_lsn: Lsn | None, until_idle: float | None, max_seconds: float | None) -> int:
    """Take the snapshot that snapshot.mode requires, then stream changes to wal2lake.sinks until stopped.

    Ctrl-C stops the run after the current step; the next run resumes at the same position.
    """
    console = Console(stderr=True, soft_wrap=True)
    connector = Connector.from_file(config)
    for warning in connector.warnings:
        console.print(f"warning: {warning}", highlight=False)
    log_snapshot_notifications()
    with stop_requests() as stop:
        with snapshot_progress(console) as on_progress:
            taken = connector.initial_snapshot(on_progress=on_progress)
        if taken:
            rows = sum(report.rows for report in taken)
            console.print(f"snapshot: {rows:,} rows of {len(taken)} tables", highlight=False)
        if not connector.streams:
            return DONE
        report = connector.stream(
            Until(lsn=until_lsn, idle_seconds=until_idle, max_seconds=max_seconds),
            on_round=lambda done: _print_round(console, done),
            should_stop=stop.is_set,
        )
    where = "Kafka" if connector.config.engine.sinks == ("kafka",) else "lake"
    console.print(
        f"{report.events:,} changes in {report.batches} batches, {where} at {report.lsn} ({report.stopped_by})",
        highlight=False,
    )
    for table, why in report.failed.items():
        console.print(f"[red]{table}[/] is not merged: {why}", highlight=False)
    return FAILED if report.failed else DONE


def _print_round(console: Console, report: RoundReport) -> None:
    changes = sum(merge.events for merge in report.merges)
    console.print(
        f"{report.lsn}  {changes:,} changes into {len(report.merges)} tables, {report.lag_bytes:,} bytes behind",
        highlight=False,
    )
    for merge in report.merges:
        if merge.check and merge.check.quarantined:
            console.print(f"  {merge.table}: {merge.check.quarantined} rows quarantined", highlight=False)
