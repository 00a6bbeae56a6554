"""What in a connector file has no effect on this server: said by ``check``, and once by each start.

properties that name something ─▶ names of the catalogue ─▶ entries that match nothing
class of a custom snapshot mode ─▶ what it asks for and does not get
masks, hashes, truncations     ─▶ columns that they match ─▶ columns whose type they leave as it is
captured columns               ─▶ their types             ─▶ columns that events leave out
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cdc_core.config.connector import ConnectorConfig
from cdc_core.config.named import Database, Unmatched, unmatched
from cdc_core.errors import ConfigError
from cdc_core.postgres import Check, Context, Finding, Source, bad, doubtful
from cdc_core.schema import TableSchema, streamed
from cdc_core.selection import plan_columns
from cdc_core.types import resolve

NAME = "effects"


def effects_check(config: ConnectorConfig, *, writes_events: bool) -> Check:
    """The check of one connector file."""

    def check(context: Context) -> list[Finding]:
        database = Database(config.postgres.database_dbname, context.names, context.others, context.tables)
        return [
            bad(NAME, said.found, said.remedy) if said.is_error else doubtful(NAME, said.found, said.remedy)
            for said in _ineffective(config, database, writes_events=writes_events)
        ]

    return check


def say_effects(config: ConnectorConfig, source: Source, *, writes_events: bool) -> None:
    """Warn of what has no effect, once. ``source`` has listed its tables.

    Raises ConfigError if more would be read than the connector file says.
    """
    names, others = source.relations
    database = Database(config.postgres.database_dbname, names, others, source.selected)
    for said in _ineffective(config, database, writes_events=writes_events):
        if said.is_error:
            raise ConfigError(said.found, said.remedy)
        source.warn(f"{said.found} {said.remedy}")


def _ineffective(config: ConnectorConfig, database: Database, *, writes_events: bool) -> Iterator[Unmatched]:
    custom = config.snapshot.custom
    if custom is not None and custom.unheeded:
        yield Unmatched(custom.unheeded, "Return False.")
    yield from unmatched(config, database)
    tables = [streamed(table) for table in database.captured]
    yield from _clear_columns(config, tables)
    if writes_events:
        yield from _left_out(config, tables)


def _clear_columns(config: ConnectorConfig, tables: Sequence[TableSchema]) -> Iterator[Unmatched]:
    for table in tables:
        for plan in plan_columns(table, config.selection):
            if plan.note:
                yield Unmatched(
                    f"{table.id}.{plan.name} {plan.note}",
                    "Exclude the column (column.exclude.list), or change its type.",
                )


def _left_out(config: ConnectorConfig, tables: Sequence[TableSchema]) -> Iterator[Unmatched]:
    if config.types.include_unknown_datatypes:
        return
    for table in tables:
        for column, plan in zip(table.columns, plan_columns(table, config.selection), strict=True):
            if plan.included and resolve(column, config.types).event is None:
                yield Unmatched(
                    f"{table.id}.{column.name} is of type {column.type.name}, which events leave out as Debezium's do.",
                    "Set include.unknown.datatypes=true to have its text as bytes.",
                )
