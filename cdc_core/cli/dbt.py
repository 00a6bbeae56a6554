"""``wal2lake dbt``: the lake tables as sources of a dbt project."""

from __future__ import annotations

import click
import yaml

from cdc_core.cli.arguments import ConnectorFile, TableType, config_argument
from cdc_core.cli.exits import DONE
from cdc_core.schema import TableId


@click.command("dbt", short_help="Print the lake tables as dbt sources.")
@config_argument
@click.argument("tables", type=TableType(), nargs=-1, metavar="[SCHEMA.TABLE]...")
@click.option(
    "--freshness-minutes",
    type=click.IntRange(0),
    default=60,
    show_default=True,
    help="Age of the newest row at which dbt source freshness warns; 0 for no test.",
)
def command(config: ConnectorFile, tables: tuple[TableId, ...], freshness_minutes: int) -> int:
    """Print the lake tables as sources of a dbt project (dbt 1.10 or later), in YAML.

    Each captured table, or each TABLE (schema.table), has its columns with types, the comments of the source, tests of
    NOT NULL and of a key of one column. Write the output to a file of the project: wal2lake dbt shop.properties >
    models/sources.yml. docs/downstream.md has a model that follows a lake table.
    """
    made = config.open().dbt_source(tables or None, freshness_minutes)
    click.echo(yaml.safe_dump(made, sort_keys=False, allow_unicode=True, width=120), nl=False)
    return DONE
