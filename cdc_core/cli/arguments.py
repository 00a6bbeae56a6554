"""Arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId


class LsnType(click.ParamType[Lsn]):
    """An LSN as PostgreSQL prints it."""

    name = "LSN"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Lsn:
        """Text such as 16/B374D848."""
        try:
            return value if isinstance(value, Lsn) else Lsn.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class TableType(click.ParamType[TableId]):
    """A table's name."""

    name = "SCHEMA.TABLE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TableId:
        """Text such as public.orders; a dot in the schema's name is not supported here."""
        if isinstance(value, TableId):
            return value
        schema, dot, table = value.partition(".")
        if not (schema and dot and table):
            self.fail(f"expected schema.table, found {value!r}", param, ctx)
        return TableId(schema, table)


config_argument = click.argument(
    "config", type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path), metavar="CONFIG"
)
until_lsn = click.option("--until-lsn", type=LsnType(), help="Stop once every change up to this LSN is processed.")
until_idle = click.option(
    "--until-idle",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Stop after this many seconds without a change, once the server has sent all changes.",
)
max_seconds = click.option(
    "--max-seconds", type=click.FloatRange(min=0.1), metavar="SECONDS", help="Stop after this many seconds in any case."
)
