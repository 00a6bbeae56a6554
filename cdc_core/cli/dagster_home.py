"""``wal2lake dagster-home``: a folder to start Dagster with."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from cdc_core.cli.exits import DONE
from cdc_core.dagster_home import CONNECTORS, INSTANCE, WORKSPACE, write_home


@click.command("dagster-home", short_help="Write the settings of a Dagster instance.")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def command(folder: Path) -> int:
    """Write dagster.yaml and workspace.yaml to FOLDER, and print how to start Dagster with them.

    Files that exist there and differ are not overwritten.
    """
    folder = folder.absolute()
    written = write_home(folder)
    for name in (INSTANCE, WORKSPACE):
        click.echo(f"{folder / name}: {'written' if folder / name in written else 'unchanged'}")
    home = shlex.quote(str(folder))
    click.echo(f"Put connector files into {folder / CONNECTORS} (or set WAL2LAKE_CONNECTORS), then start Dagster:")
    click.echo(f"  export DAGSTER_HOME={home}")
    click.echo(f"  dagster dev -w {shlex.quote(str(folder / WORKSPACE))}")
    return DONE
