"""The verb that reads chosen tables, whatever the lake has of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cdc_core.assemble.beforehand import chosen_tables
from cdc_core.assemble.context import RunContext
from cdc_core.assemble.taking import OnProgress, take
from cdc_core.engine.reports import SnapshotReport
from cdc_core.schema.table import TableId


def snapshot(
    context: RunContext, tables: Sequence[TableId] | None, spark: Any, on_progress: OnProgress | None
) -> list[SnapshotReport]:
    """Read tables (None: all captured) into the lake at one consistent point, whatever the lake has of them."""
    context.config.require_carried()
    context.config.require_lake()
    with context.claimed() as source:
        captured, found = context.checked(source)
        chosen = captured if tables is None else chosen_tables(captured, tables)
        others = [table for table in captured if table not in chosen]
        if others and not found.exists and context.known_tables(others):
            raise context.slot_gone()
        spark = spark or context.spark()
        published = source.publish(captured, always=context.published_always)
        # A table that joins the publication again has changes that never come: it is read again too.
        again = [table for table in others if table.id in published.added]
        again = [table for table in again if table.id in context.known_tables(again)]
        chosen = [table for table in [*chosen, *again] if table in published.live]
        return take(context, source, spark, chosen, on_progress)
