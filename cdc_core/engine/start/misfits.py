"""Tables that cannot be written to the lake, and values that the server does not send as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cdc_core.engine.connector_lake import ConnectorLake
from cdc_core.errors import MissingKeyError, TableError
from cdc_core.postgres import ConcernedTable, Source, concerned_tables
from cdc_core.schema import TableSchema
from cdc_core.selection import SelectionOptions, lake_key_conflicts, plan_columns


def misfits(lake: ConnectorLake, source: Source, tables: Iterable[TableSchema]) -> Iterator[TableError]:
    """Yield why tables cannot be written to the lake, one error a table.

    Masking or exclusion removes columns that identify rows, a table does not meet the requirements of its delete
    mode, or the server does not send such columns exactly.
    """
    for table in tables:
        try:
            _check(lake, source, table)
        except TableError as error:
            yield error


def concerned(source: Source, selection: SelectionOptions, tables: Iterable[TableSchema]) -> list[ConcernedTable]:
    """Return the tables with captured values that this server does not send as they are, once for each fault."""

    def captures(table: TableSchema) -> list[str]:
        return [plan.name for plan in plan_columns(table, selection) if plan.included]

    return concerned_tables(source.options, source.server_version, tables, captures)


def uncarried(lake: ConnectorLake, source: Source, table: TableSchema) -> ConcernedTable | None:
    """Return why changes of the table would not find their rows in the lake; None if they do."""
    return next((fault for fault in concerned(source, lake.plan.selection, [table]) if fault.identifying), None)


def _check(lake: ConnectorLake, source: Source, table: TableSchema) -> None:
    lost = lake_key_conflicts(table, plan_columns(table, lake.plan.selection))
    if lost:
        raise TableError(
            f"The rows of {table.id} are identified by {', '.join(lost)}, which the connector file "
            "excludes, truncates or masks.",
            "Capture key columns in full (a hash is allowed), or exclude the table.",
            str(table.id),
        )
    try:
        lake.options.delete_modes.check(table)
    except MissingKeyError:
        # A table of the lake that has lost its key is paused by the stream; the other tables are not delayed.
        if not lake.known([table]):
            raise
    refused = uncarried(lake, source, table)
    if refused is not None and not lake.known([table]):
        raise TableError(refused.reason, f"{refused.action}.", str(table.id))
