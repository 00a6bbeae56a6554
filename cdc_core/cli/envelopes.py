"""``wal2lake envelopes``: Debezium's records as JSON lines."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from cdc_core.assemble import Connector
from cdc_core.cli.arguments import config_argument, until_idle, until_lsn
from cdc_core.cli.exits import DONE, stop_requests
from cdc_core.engine.reports import Until
from cdc_core.lsn import Lsn


@click.command("envelopes")
@config_argument
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="File of JSON lines; new records are added at its end.",
)
@until_lsn
@until_idle
def command(config: Path, output: Path, until_lsn: Lsn | None, until_idle: float | None) -> int:
    """Run the connector as CONFIG says, snapshot then stream, and write each record as one JSON line.

    A line is {"topic", "key", "value", "headers"}, with what Kafka Connect's JSON converter writes, schemas included.
    Without --until-lsn or --until-idle it goes on until stopped.
    """
    connector = Connector.from_file(config, needs_lake=False)
    for warning in connector.warnings:
        click.echo(f"warning: {warning}", err=True)
    # What a signal asks to be logged, and word of snapshots.
    logging.basicConfig(format="%(message)s")
    for name in ("cdc_core.snapshot.signals.envelopes", "cdc_core.snapshot.notifications"):
        logging.getLogger(name).setLevel(logging.INFO)
    with stop_requests() as stop:
        written = connector.envelopes(output, Until(lsn=until_lsn, idle_seconds=until_idle), stop.is_set)
    click.echo(f"{written} records written to {output}", err=True)
    return DONE
