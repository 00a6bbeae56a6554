"""Tables whose columns a Delta table cannot have under their names: they are paused alone, the others go on."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.engine.connector_lake import ConnectorLake
from cdc_core.engine.start.pauses import pause_unread
from cdc_core.errors import TableError
from cdc_core.postgres import Finding, doubtful
from cdc_core.schema import NameClash, TableSchema, name_clash, streamed
from cdc_core.selection import plan_columns


def without_clashes(lake: ConnectorLake, tables: Sequence[TableSchema], *, named: bool = False) -> list[TableSchema]:
    """Return the tables that a lake can have; the others are recorded as paused.

    ``named``: the user named these tables, so TableError is raised instead.
    """
    clashes = {table.id: clash for table in tables if (clash := _clash(lake, table)) is not None}
    if clashes and named:
        table, clash = next(iter(clashes.items()))
        raise TableError(clash.reason, clash.remedy, str(table))
    if clashes:
        said = {table: (clash.reason, clash.remedy) for table, clash in clashes.items()}
        pause_unread(lake, said, NameClash.cause, "it could not be read with its columns")
    return [table for table in tables if table.id not in clashes]


def clash_findings(lake: ConnectorLake, tables: Sequence[TableSchema]) -> list[Finding]:
    """Return a warning for each table that would be paused."""
    clashes = [clash for table in tables if (clash := _clash(lake, table)) is not None]
    return [doubtful("columns", f"{clash.reason} The table will be paused.", clash.remedy) for clash in clashes]


def _clash(lake: ConnectorLake, table: TableSchema) -> NameClash | None:
    plans = plan_columns(streamed(table), lake.plan.selection)
    return name_clash(table.id, [plan.name for plan in plans if plan.included])
