"""``wal2lake envelopes``: Debezium's records as JSON lines."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from cdc_core.cli.arguments import ConnectorFile, config_argument, until_idle, until_lsn
from cdc_core.cli.exits import DONE, stop_requests
from cdc_core.cli.logs import log_options, say, say_stopping, set_up
from cdc_core.engine import Until
from cdc_core.lsn import Lsn


@click.command("envelopes", short_help="Write Debezium's records to a file.")
@config_argument
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="JSON Lines file; new records are appended.",
)
@until_lsn
@until_idle
@log_options
def command(
    config: ConnectorFile,
    output: Path,
    until_lsn: Lsn | None,
    until_idle: float | None,
    log_format: str | None,
    verbose: bool,
) -> int:
    """Run the connector of CONFIG, first the snapshot, then streaming, and write each record as one JSON line.

    A line is {"topic", "key", "value", "headers"}, as written by Kafka Connect's JSON converter with schemas.
    Without --until-lsn or --until-idle the command runs until it is stopped.
    """
    set_up(log_format, verbose=verbose)
    connector = config.open(needs_lake=False)
    set_up(log_format, connector.config.observe.log_format, verbose=verbose)
    for warning in connector.warnings:
        say(f"warning: {warning}", level=logging.WARNING)
    with stop_requests(say_stopping) as stop:
        written = connector.envelopes(output, Until(lsn=until_lsn, idle_seconds=until_idle), stop.is_set)
    say(f"{written} records written to {output}", event="end", records=written)
    return DONE
