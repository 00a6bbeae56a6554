"""``wal2lake reset``: removes a connector's slot, publication and state."""

from __future__ import annotations

import click

from cdc_core.cli.arguments import ConnectorFile, config_argument
from cdc_core.cli.exits import DONE


@click.command("reset", short_help="Remove slot, publication and state.")
@config_argument
@click.option("--lake", "with_lake", is_flag=True, help="Also remove the connector's lake tables.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(config: ConnectorFile, with_lake: bool, yes: bool) -> int:
    """Remove what the connector of CONFIG has made: its slot, its publication and its files in the state folder.

    Shows what it would remove, and asks first. Lake tables are kept unless --lake is given, and can be read as before;
    a later run reads every table again. A publication that another role owns is kept, and so are events in Kafka.
    """
    connector = config.open(needs_lake=False)
    leftovers = connector.leftovers(with_lake=with_lake)
    if leftovers.kept_publication:
        name = connector.config.postgres.publication_name
        click.echo(f"The publication {name} is kept: {leftovers.kept_publication}.", err=True)
    if leftovers.is_empty:
        click.echo(f"There is nothing to remove of connector {connector.name}.", err=True)
        return DONE
    database = connector.config.postgres.database_dbname
    if leftovers.slot:
        click.echo(f"replication slot {leftovers.slot} of database {database}")
    if leftovers.publication:
        click.echo(f"publication {leftovers.publication} of database {database}")
    for path in leftovers.state:
        click.echo(f"state: {path}")
    if leftovers.lake:
        click.echo(f"lake tables and changelogs: everything in {leftovers.lake}")
    if not yes:
        click.confirm("Remove this? It cannot be undone.", abort=True)
    connector.reset(leftovers)
    click.echo("Removed.", err=True)
    return DONE
