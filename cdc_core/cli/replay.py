"""``wal2lake replay``: resumes a paused table and replays quarantined changes."""

from __future__ import annotations

import click
from rich.console import Console

from cdc_core.cli.arguments import ConnectorFile, TableType, config_argument
from cdc_core.cli.exits import DONE
from cdc_core.cli.logs import log_options, say, set_up
from cdc_core.cli.progress import snapshot_progress
from cdc_core.schema import TableId


@click.command("replay", short_help="Resume a paused table.")
@config_argument
@click.argument("table", type=TableType())
@click.option("--accept", metavar="RULE", multiple=True, help="Accept changes that fail this rule. Repeatable.")
@click.option("--accept-all", is_flag=True, help="Accept changes regardless of the rules they fail.")
@click.option("--drop", is_flag=True, help="Discard the changes in quarantine instead.")
@log_options
def command(
    config: ConnectorFile,
    table: TableId,
    accept: tuple[str, ...],
    accept_all: bool,
    drop: bool,
    log_format: str | None,
    verbose: bool,
) -> int:
    """Resume the paused table TABLE (schema.table) and replay its quarantined changes.

    Quarantined changes are checked again with the current rules. Changes that pass are merged unchanged and in their
    original order, unless a later change of the same key superseded them.

    A paused table is resumed after the cause of the pause is corrected: wal2lake status shows which tables are paused,
    why, and what to do. Its changes are kept in the table's changelog and are merged in order, each exactly once. If
    the lake table cannot be brought up to date from the changelog, the table is re-read first.
    """
    console = Console(stderr=True, soft_wrap=True)
    if drop and (accept or accept_all):
        raise click.UsageError("--drop cannot be combined with --accept or --accept-all.")
    set_up(log_format, verbose=verbose)
    connector = config.open()
    set_up(log_format, connector.config.observe.log_format, verbose=verbose)
    with snapshot_progress(console) as on_progress:
        done = connector.replay(table, None, on_progress, accept, accept_all, drop)
    if done.snapshot is not None:
        say(f"{table}: {done.snapshot.rows:,} rows re-read as of {done.snapshot.lsn}", event="table read")
    say(f"{table}: {done.events:,} changes merged", event="end", changes=done.events)
    counts = done.quarantine
    if counts.replayed or counts.dropped or counts.waiting:
        say(
            f"{table}: {counts.replayed:,} changes replayed from quarantine, {counts.dropped:,} dropped, "
            f"{counts.waiting:,} still waiting",
            event="quarantine",
        )
    return DONE
