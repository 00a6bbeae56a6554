"""Which tables a snapshot reads into the lake, and what it makes before: the epoch, the publication, the slot.

proof ─▶ plan ─▶ session, where anything is to be made ─▶ record ─▶ publication ─▶ tables ─▶ rows, or the slot alone
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from cdc_core.engine.backfill.table_snapshots import Observed, TableSnapshots
from cdc_core.engine.start.clashes import without_clashes
from cdc_core.engine.start.continuity import Continuity
from cdc_core.engine.start.handover import Proved
from cdc_core.engine.start.read_plan import what_to_read
from cdc_core.engine.start.recorded_stream import RecordedStream
from cdc_core.engine.start.unread import say_unread
from cdc_core.postgres import SlotInfo, Source
from cdc_core.schema import TableId, TableSchema
from cdc_core.selection import chosen_tables
from cdc_core.snapshot import SnapshotReport
from cdc_core.spark import GivenSession

_log = logging.getLogger(__name__)


def read_required(
    snapshots: TableSnapshots,
    source: Source,
    tables: list[TableSchema],
    slot: SlotInfo,
    spark: GivenSession,
    observed: Observed,
    only: Sequence[TableId] | None,
    *,
    is_lost: bool,
) -> tuple[list[SnapshotReport], Proved | None]:
    """Read what ``snapshot.mode`` requires at a start, if anything, and make the slot if there is none.

    Returns the reports, and what was proved if it still holds: if nothing was read and nothing was changed.
    ``is_lost``: the slot had lost WAL, and was dropped. ``only``: the tables that the caller names, None for all.
    Raises CdcError.
    """
    lake = snapshots.lake
    captured = [table for table in tables if source.selection.is_table(table.id)]
    asked = {table.id for table in (captured if only is None else chosen_tables(captured, only))}
    mode, proof = lake.mode, Continuity.of(lake, tables)
    plan = what_to_read(mode, proof, has_slot=slot.exists, is_lost=is_lost)
    proved = Proved(tables, proof, RecordedStream(lake, source, proof))
    if plan.needs_session:
        spark = snapshots.ready(spark)
    if plan.restarts and proof.mismatch is not None:
        _log.warning("%s All tables are read again.", proof.mismatch.message)
        proved.recorded.begin()
    else:
        proved.recorded.join()
    known, unusable = lake.known_and_unusable(tables) if plan.looks or only is not None else (set(), {})
    candidates = [table for table in captured if source.selection.includes_in_snapshot(table.id)]
    if plan.restarts:
        candidates += [table for table in tables if table.id in proof.held.tables and table not in candidates]
    if plan.looks and plan.may_read(candidates, known):
        # Before anything is created at the source: if Java is missing, nothing remains to be removed.
        spark = snapshots.ready(spark)
    published = source.publish(tables, always=snapshots.always)
    unread: list[TableSchema] = []
    if plan.looks:
        # The stream pauses tables whose folder cannot be used; the others are not delayed.
        live = published.names
        readable = [table for table in candidates if table.id not in unusable and table.id in live]
        unread = plan.tables(readable, asked, known, published.added)
    if only is not None:
        read = {*unusable, *(table.id for table in unread if plan.reads)}
        say_unread(lake, source, only, read=read, known=known, published=published.names)
    unread = without_clashes(lake, unread)
    if unread and plan.reads:
        return snapshots.take(source, snapshots.ready(spark), unread, observed, later=mode.stream), None
    if not slot.exists:
        source.make_slot()
        return [], None
    return [], proved if proved.goes_on and not published.is_altered else None


def read_named(
    snapshots: TableSnapshots,
    source: Source,
    tables: list[TableSchema],
    names: Sequence[TableId] | None,
    spark: GivenSession,
    observed: Observed,
) -> list[SnapshotReport]:
    """Read tables that are named (None: those of ``snapshot.include.collection.list``), whatever the lake has of them.

    The stream must continue the lake, unless it has no other table. Raises CdcError; that of a table whose folder
    cannot be used after the others were read.
    """
    lake = snapshots.lake
    captured = [table for table in tables if source.selection.is_table(table.id)]
    chosen = source.selection.chosen_for_snapshot(captured, names)
    others = [table for table in captured if table not in chosen]
    proof = Continuity.of(lake, tables)
    if any(table.id in proof.held.tables for table in others):
        proof.require()
    session = snapshots.ready(spark)
    recorded = RecordedStream(lake, source, proof)
    if proof.mismatch is not None:
        recorded.begin()
    else:
        recorded.join()
    published = source.publish(tables, always=snapshots.always)
    # Changes of a table that is added to the publication again were not published meanwhile: it is re-read, too.
    again = [table for table in others if table.id in published.added]
    again = [table for table in again if table.id in lake.known(again)]
    live = published.names
    silent = [table.id for table in chosen if table.id not in live]
    say_unread(lake, source, silent, read=(), known=(), published=published.names)
    chosen = [table for table in [*chosen, *again] if table.id in live]
    chosen = without_clashes(lake, chosen, named=names is not None)
    unusable = lake.known_and_unusable(chosen)[1]
    usable = [table for table in chosen if table.id not in unusable]
    reports = snapshots.take(source, session, usable, observed) if usable else []
    for error in unusable.values():
        raise error
    if not others:
        recorded.note_all_read()
    return reports
