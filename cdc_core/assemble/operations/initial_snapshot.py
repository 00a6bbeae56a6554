"""Operation ``initial_snapshot``: takes the snapshot that the snapshot mode requires at start."""

from __future__ import annotations

import logging
from typing import Any

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.notifications import OnNotification
from cdc_core.assemble.start.clashes import without_clashes
from cdc_core.assemble.start.continuity import Continuity
from cdc_core.assemble.start.recorded_stream import RecordedStream
from cdc_core.assemble.table_snapshots import OnProgress, take
from cdc_core.engine.reading.continuity import Break
from cdc_core.snapshot.modes import ModeActions
from cdc_core.snapshot.reports import SnapshotReport

_log = logging.getLogger(__name__)


def initial_snapshot(
    context: RunContext, spark: Any, on_progress: OnProgress | None, on_notification: OnNotification | None = None
) -> list[SnapshotReport]:
    """Take the initial snapshot that ``snapshot.mode`` requires, if any. Creates the slot if it does not exist."""
    context.config.require_carried()
    mode = context.lake_mode
    with context.claimed() as source:
        is_lost = mode.position_lost and source.slot().is_lost
        tables, found = context.checked(source, recreates_slot=mode.position_lost)
        wanted = [t for t in tables if source.selection.includes_in_snapshot(t.id) and source.selection.is_table(t.id)]
        is_broken = False
        if context.has_lake:
            proof = Continuity.of(context, tables)
            is_broken = proof.mismatch is not None and (mode.position_lost or mode.later or _is_first(mode, proof))
            if is_broken:
                assert proof.mismatch is not None
                _log.warning("%s All tables are read again.", proof.mismatch.message)
                spark = context.ready(spark)
                wanted += [t for t in tables if t.id in proof.held.tables and t not in wanted]
                RecordedStream(context, source, proof).begin()
            else:
                if proof.is_new and (mode.later or mode.first or not found.exists):
                    # Before anything is created in the lake or at the source: if Java is missing, nothing remains.
                    spark = context.ready(spark)
                RecordedStream(context, source, proof).join()
        if context.has_lake and (mode.later or mode.first or is_broken or not found.exists):
            known, unusable = context.in_lake(tables)
            known = set() if mode.later or is_broken else known
            is_lost = is_lost or is_broken
            reads = mode.later or mode.first or is_lost
            if not found.exists or (reads and any(table.id not in known for table in wanted)):
                # Before anything is created at the source: if Java is missing, nothing remains to be removed.
                spark = context.ready(spark)
            published = source.publish(tables, always=context.published_always)
            # The stream pauses tables whose folder cannot be used; the others are not delayed.
            wanted = [table for table in wanted if table.id not in unusable]
            # A new slot has no changes from before its creation, and a table that is added to the publication (again)
            # has unpublished ones: both are re-read.
            known = known - published.added if found.exists else set()
            unread = [table for table in wanted if table.id not in known and table in published.live]
            unread = without_clashes(context, unread)
            if unread and reads:
                return take(
                    context, source, context.ready(spark), unread, on_progress, on_notification, later=mode.stream
                )
        else:
            source.publish(tables, always=context.published_always)
        if not found.exists:
            source.make_slot()
        return []


def _is_first(mode: ModeActions, proof: Continuity) -> bool:
    """Whether this start reads everything in any case: the lake has no table yet, or slot.name was changed."""
    is_renamed = proof.mismatch is not None and proof.mismatch.kind is Break.SLOT_NAME
    return mode.first and (proof.is_empty or is_renamed)
