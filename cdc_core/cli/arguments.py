"""Arguments that several commands share."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cdc_core.assemble import Connector
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId


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
        """Text such as public.orders or "my.schema"."my table"."""
        if isinstance(value, TableId):
            return value
        try:
            return TableId.of_name(value)
        except ValueError as error:
            self.fail(f"expected {error}, found {value!r}", param, ctx)


class PairType(click.ParamType[tuple[str, str]]):
    """A property and its value."""

    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Text such as wal2lake.metrics.port=9404; the value may be empty."""
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if not equals or not name.strip():
            self.fail(f"expected KEY=VALUE, found {value!r}", param, ctx)
        return name.strip(), text


@dataclass(frozen=True, slots=True)
class ConnectorFile:
    """The connector file of a command, and the properties that --set overrides for this command."""

    path: Path
    overrides: tuple[tuple[str, str], ...] = ()

    def open(self, *, needs_lake: bool = True) -> Connector:
        """Read it. Raises ConfigError."""
        return Connector.from_file(self.path, needs_lake=needs_lake, overrides=self.overrides)

    def __str__(self) -> str:
        """The arguments that give the same configuration to another command."""
        given = (f"--set {shlex.quote(f'{name}={text}')}" for name, text in self.overrides)
        return " ".join([shlex.quote(str(self.path)), *given])


_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
_overrides = click.option(
    "--set",
    "overrides",
    type=PairType(),
    multiple=True,
    help="A property for this command, in place of the file's; may be repeated. Other users may see the command "
    "line: give secrets as ${env:NAME}.",
)


def config_argument(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a command CONFIG and --set, as its parameter ``config``: a ConnectorFile."""

    @click.argument("config", type=_FILE, metavar="CONFIG")
    @_overrides
    @functools.wraps(command)
    def with_file(config: Path, overrides: tuple[tuple[str, str], ...], **others: Any) -> int | None:
        return command(config=ConnectorFile(config, overrides), **others)

    return with_file


def configs_argument(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a command one CONFIG or several, and --set for all of them, as its parameter ``configs``: ConnectorFiles."""

    @click.argument("configs", type=_FILE, metavar="CONFIG...", nargs=-1, required=True)
    @_overrides
    @functools.wraps(command)
    def with_files(configs: tuple[Path, ...], overrides: tuple[tuple[str, str], ...], **others: Any) -> int | None:
        for path in configs:
            if configs.count(path) > 1:
                raise click.UsageError(f"{path} is given twice.")
        return command(configs=[ConnectorFile(path, overrides) for path in configs], **others)

    return with_files


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
