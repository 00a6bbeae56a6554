"""A captured table and its lake table as programs outside show them, with the connector's options."""

from __future__ import annotations

from cdc_core.assemble.context import RunContext
from cdc_core.described import DescribedTable, described
from cdc_core.lake import lake_schema
from cdc_core.schema import TableSchema


def describe(context: RunContext, table: TableSchema) -> DescribedTable:
    """Describe a captured table, and its lake table as a snapshot would make it; without a lake, only the first."""
    if not any(destination.has_tables for destination in context.destinations):
        return described(table, (), {}, "")
    lake, plan = context.lake, context.plan
    fields = lake_schema(plan.typer(table).row_type, lake.options.delete_modes.of(table.id))
    return described(table, fields, plan.treatments(table), str(lake.paths.lake(table.id)))
