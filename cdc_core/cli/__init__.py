"""The ``wal2lake`` command. Exit codes: 0 done, 1 failed, 2 wrong use."""

from __future__ import annotations

import sys

import click

from cdc_core.cli import check, demo, envelopes, replay, run, signal_command, snapshot, status
from cdc_core.cli.exits import FAILED, describe
from cdc_core.errors import CdcError
from cdc_core.version import __version__

EPILOG = """
\b
CONFIG is a Debezium connector file (.properties or JSON), taken as it is, plus keys of wal2lake's own:
  wal2lake.lake.path=/data/lake     where the Delta tables go
  database.password=${env:PGPASS}   secrets are read when used and never printed

\b
First steps:
  wal2lake demo                     see all of it on an embedded PostgreSQL
  wal2lake check shop.properties    is the server ready, and what does each property do?
  wal2lake run shop.properties      snapshot, then stream, until stopped

\b
Exit codes: 0 done, 1 failed (one sentence says why and what to do), 2 wrong use.
"""


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(__version__, prog_name="wal2lake")
def cli() -> None:
    """PostgreSQL change data capture into Delta Lake, with Debezium's events, on Spark, run by Dagster."""


for command in (
    demo.command,
    check.command,
    run.command,
    snapshot.command,
    envelopes.command,
    status.command,
    replay.command,
    signal_command.command,
):
    cli.add_command(command)


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("Stopped.", err=True)
        sys.exit(FAILED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except CdcError as error:
        click.echo(f"wal2lake: {describe(error)}", err=True)
        sys.exit(FAILED)
    except KeyboardInterrupt:
        click.echo("Stopped.", err=True)
        sys.exit(FAILED)
    sys.exit(code or 0)
