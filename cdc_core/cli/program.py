"""The commands, and the exit code of a failed one."""

from __future__ import annotations

import sys

import click

from cdc_core.cli import (
    adopt,
    check,
    dagster_home,
    dbt,
    demo,
    envelopes,
    maintain,
    quality,
    reconcile,
    replay,
    reset,
    run,
    signal_command,
    snapshot,
    status,
    versions,
)
from cdc_core.cli.exits import FAILED, leave_at_once
from cdc_core.cli.logs import say_defect, say_error
from cdc_core.engine import scratch_of_command
from cdc_core.errors import CdcError
from cdc_core.spark import java_of_command
from cdc_core.storage_faults import storage_fault
from cdc_core.version import __version__

EPILOG = """
\b
CONFIG is an unchanged Debezium connector file (.properties or JSON), plus properties of wal2lake:
  wal2lake.lake.path=/data/lake     root folder of the Delta tables
  database.password=${env:PGPASS}   secrets are resolved when used and never printed

\b
First steps:
  wal2lake demo                     run a demo with an embedded PostgreSQL
  wal2lake check shop.properties    check the configuration, the server and the lake folder
  wal2lake run shop.properties      take a snapshot, then stream until stopped

\b
Exit codes: 0 success, 1 failure (with a message and a remedy), 2 usage error.
"""


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(__version__, prog_name="wal2lake")
def cli() -> None:
    """PostgreSQL change data capture into Delta Lake, with Debezium's events, Spark and Dagster."""


for command in (
    demo.command,
    check.command,
    run.command,
    snapshot.command,
    envelopes.command,
    status.command,
    versions.command,
    maintain.command,
    reconcile.command,
    quality.command,
    replay.command,
    reset.command,
    signal_command.command,
    adopt.command,
    adopt.offsets_command,
    dbt.command,
    dagster_home.command,
):
    cli.add_command(command)


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        with scratch_of_command(), java_of_command():
            code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except CdcError as error:
        say_error(error)
        sys.exit(FAILED)
    except (click.exceptions.Abort, KeyboardInterrupt):
        leave_at_once()
        click.echo("Stopped.", err=True)
        sys.exit(FAILED)
    except Exception as error:
        fault = storage_fault(error)
        if fault is None:
            say_defect(error)
        else:
            say_error(fault)
        sys.exit(FAILED)
    sys.exit(code or 0)
