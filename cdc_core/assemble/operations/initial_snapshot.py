"""Operation ``initial_snapshot``: takes the snapshot that the snapshot mode requires at start."""

from __future__ import annotations

import logging
from contextlib import ExitStack

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.destination import SnapshotCall
from cdc_core.assemble.metrics import meter
from cdc_core.assemble.prerequisites import chosen_tables
from cdc_core.assemble.quality import require_rules
from cdc_core.assemble.table_snapshots import take
from cdc_core.engine import Break, Continuity, Proved, RecordedStream, say_unread, without_clashes
from cdc_core.postgres import SlotInfo, Source
from cdc_core.schema import TableSchema
from cdc_core.snapshot import ModeActions, SnapshotReport
from cdc_core.spark import GivenSession

_log = logging.getLogger(__name__)


def initial_snapshot(context: RunContext, call: SnapshotCall) -> list[SnapshotReport]:
    """Take the initial snapshot that ``snapshot.mode`` requires, if any. Creates the slot if it does not exist.

    ``only`` are the tables to be read if the mode requires it (None: all captured). Others are read as well if the
    lake cannot continue without: if the slot or its WAL is lost, or if the publication did not contain them.
    ``handover`` gets the claim, and what was proved where nothing is read and nothing is changed.
    """
    context.config.require_carried()
    meter(context)  # raises an error before anything is made
    with ExitStack() as closing:
        source = closing.enter_context(context.claimed())
        reports, proved = _taken(context, source, call)
        if call.handover is not None:
            call.handover.give(source, proved, closing.pop_all())
        return reports


def _taken(context: RunContext, source: Source, call: SnapshotCall) -> tuple[list[SnapshotReport], Proved | None]:
    """Return the reports, and what was proved if it still holds: if nothing was read and nothing was changed."""
    mode, spark, only = context.lake.mode, call.spark, call.only
    is_lost = mode.position_lost and source.slot().is_lost
    tables, found = context.checked(source, recreates_slot=mode.position_lost)
    require_rules(context, tables)
    captured = [t for t in tables if source.selection.is_table(t.id)]
    asked = {t.id for t in (captured if only is None else chosen_tables(captured, only))}
    wanted = [t for t in captured if source.selection.includes_in_snapshot(t.id)]
    proved = _joined(context, source, mode, tables, found, spark)
    is_broken = _reads_again(mode, proved.proof)
    if is_broken:
        wanted += [t for t in tables if t.id in proved.proof.held.tables and t not in wanted]
    if mode.later or mode.first or is_broken or not found.exists:
        known, unusable = context.lake.known_and_unusable(tables)
        held = known
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
        asked |= {table.id for table in tables} if is_broken else held & published.added
        unread = [table for table in wanted if table.id in asked - known and table in published.live]
        if only is not None:
            read = {*unusable, *((table.id for table in unread) if reads else ())}
            say_unread(context.lake, source, only, read=read, held=held, published=published.names)
        unread = without_clashes(context.lake, unread)
        if unread and reads:
            spark = context.ready(spark)
            return take(context, source, spark, unread, call.on_progress, call.on_notification, later=mode.stream), None
    else:
        published = source.publish(tables, always=context.published_always)
        if only is not None:
            known, unusable = context.lake.known_and_unusable(tables)
            say_unread(context.lake, source, only, read=unusable, held=known, published=published.names)
    if not found.exists:
        source.make_slot()
        return [], None
    return [], proved if proved.goes_on and not published.is_altered else None


def _joined(
    context: RunContext,
    source: Source,
    mode: ModeActions,
    tables: list[TableSchema],
    found: SlotInfo,
    spark: GivenSession,
) -> Proved:
    """Go on with the stream that the lake has recorded, or begin an epoch if all tables are to be read again."""
    proof = Continuity.of(context.lake, tables)
    recorded = RecordedStream(context.lake, source, proof)
    if _reads_again(mode, proof):
        assert proof.mismatch is not None
        _log.warning("%s All tables are read again.", proof.mismatch.message)
        context.ready(spark)
        recorded.begin()
    else:
        if proof.is_new and (mode.later or mode.first or not found.exists):
            # Before anything is created in the lake or at the source: if Java is missing, nothing remains.
            context.ready(spark)
        recorded.join()
    return Proved(tables, proof, recorded)


def _reads_again(mode: ModeActions, proof: Continuity) -> bool:
    """Whether the stream does not continue what the lake holds, and the mode reads all tables again then."""
    return proof.mismatch is not None and (mode.position_lost or mode.later or _is_first(mode, proof))


def _is_first(mode: ModeActions, proof: Continuity) -> bool:
    """Whether this start reads everything in any case: the lake has no table yet, or slot.name was changed."""
    is_renamed = proof.mismatch is not None and proof.mismatch.kind is Break.SLOT_NAME
    return mode.first and (proof.is_empty or is_renamed)
