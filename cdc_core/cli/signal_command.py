"""``wal2lake signal``: ask something of a running connector."""

from __future__ import annotations

from pathlib import Path

import click

from cdc_core.assemble import Connector
from cdc_core.cli.arguments import config_argument
from cdc_core.cli.exits import DONE


@click.command("signal")
@config_argument
@click.argument("kind", metavar="TYPE")
@click.option("--data", default="", metavar="JSON", help='What it is about: {"data-collections": ["public.orders"]}.')
def command(config: Path, kind: str, data: str) -> int:
    """Send a signal of TYPE to the connector of CONFIG: execute-snapshot, stop-snapshot, pause-snapshot and so on.

    It goes to the table of signal.data.collection, else to signal.file. A run of wal2lake envelopes acts on it; runs
    into a lake do not take signals yet.
    """
    channel = Connector.from_file(config, needs_lake=False).signal(kind, data)
    click.echo(f"{kind} sent by channel {channel}", err=True)
    return DONE
