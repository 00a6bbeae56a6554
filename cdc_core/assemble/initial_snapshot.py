"""The verb that reads what the snapshot mode asks for at start."""

from __future__ import annotations

from typing import Any

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.taking import OnProgress, take
from cdc_core.engine.reports import SnapshotReport
from cdc_core.snapshot.modes import answers


def initial_snapshot(context: RunContext, spark: Any, on_progress: OnProgress | None) -> list[SnapshotReport]:
    """Read what ``snapshot.mode`` asks for at start; nothing where all is there. Makes the slot in any case."""
    context.config.require_carried()
    mode = answers(context.config.snapshot)
    with context.claimed() as source:
        is_lost = mode.position_lost and source.slot().is_lost
        tables, found = context.checked(source, renews_slot=mode.position_lost)
        wanted = [table for table in tables if source.selection.includes_in_snapshot(table.id)]
        if context.has_lake and (mode.later or mode.first or not found.exists):
            known = set() if mode.later else context.known_tables(tables)
            is_lost = is_lost or bool(known and not found.exists)
            if is_lost and not mode.position_lost:
                raise context.slot_gone()
            reads = mode.later or mode.first or is_lost
            if not found.exists or (reads and any(table.id not in known for table in wanted)):
                # Before anything is made at the source: without Java nothing is left behind.
                spark = spark or context.spark()
            published = source.publish(tables, always=context.published_always)
            # A new slot knows nothing of what came before it, and a table that joins the publication (again) has
            # changes that never come: both are read again.
            known = known - published.added if found.exists else set()
            unread = [table for table in wanted if table.id not in known and table in published.live]
            if unread and reads:
                return take(context, source, spark or context.spark(), unread, on_progress)
        else:
            source.publish(tables, always=context.published_always)
        if not found.exists:
            source.make_slot()
        return []
