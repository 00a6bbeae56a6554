"""``wal2lake signal``: sends a signal to a running connector."""

from __future__ import annotations

import click

from cdc_core.cli.arguments import ConnectorFile, config_argument
from cdc_core.cli.exits import DONE


@click.command("signal", short_help="Send a signal to a running connector.")
@config_argument
@click.argument("kind", metavar="TYPE")
@click.option(
    "--data",
    default="",
    metavar="JSON",
    help='The signal\'s data, a JSON object: {"data-collections": ["public.orders"]}.',
)
def command(config: ConnectorFile, kind: str, data: str) -> int:
    """Send a signal of TYPE to the connector of CONFIG.

    TYPE is execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot, log, or one that wal2lake.signal.actions
    names a class for. The signal is written to the table of signal.data.collection or to signal.file, if one of these
    channels is enabled; otherwise to a file in the folder of wal2lake.state.path, which streaming runs read.
    """
    connector = config.open(needs_lake=False)
    channel = connector.signal(kind, data)
    wait = f"within {connector.config.signals.signal_poll_interval_ms / 1000:g} s"
    when = {"source": "in the order of the stream", "file": wait, "in-process": "within 1 s"}[channel]
    click.echo(f"{kind} sent through channel {channel}: a streaming run reads it {when}, between two rounds", err=True)
    return DONE
