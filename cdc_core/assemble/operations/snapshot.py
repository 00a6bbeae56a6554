"""Operation ``snapshot``: reads tables into the lake, replacing existing lake tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.prerequisites import chosen_tables
from cdc_core.assemble.signals.requests import ask_stream, snapshot_of
from cdc_core.assemble.table_snapshots import take
from cdc_core.engine import Continuity, RecordedStream, say_unread, without_clashes
from cdc_core.errors import InUseError
from cdc_core.postgres import Source
from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot import REREAD_TABLE, OnNotification, OnProgress, SnapshotReport


def snapshot(
    context: RunContext,
    tables: Sequence[TableId] | None,
    spark: Any,
    on_progress: OnProgress | None,
    on_notification: OnNotification | None = None,
) -> list[SnapshotReport]:
    """Read tables (None: all captured) into the lake at one consistent point, replacing existing lake tables."""
    context.config.require_carried()
    context.config.require_lake()
    try:
        with context.claimed() as source:
            return _taken(context, source, tables, spark, on_progress, on_notification)
    except InUseError as error:
        return _asked(context, tables, error)


def _asked(context: RunContext, tables: Sequence[TableId] | None, in_use: InUseError) -> list[SnapshotReport]:
    """Have the running stream read them, each while the others go on. Raises CdcError."""
    with context.source() as source:
        kept = context.captured(source)
        chosen = _chosen(source, kept, tables)
    answers = ask_stream(context, REREAD_TABLE, {table.id: {} for table in chosen}, in_use)
    reports = [snapshot_of(table, answer) for table, answer in answers.items()]
    return [report for report in reports if report is not None]


def _taken(
    context: RunContext,
    source: Source,
    tables: Sequence[TableId] | None,
    spark: Any,
    on_progress: OnProgress | None,
    on_notification: OnNotification | None,
) -> list[SnapshotReport]:
    captured, _ = context.checked(source)
    kept = [table for table in captured if source.selection.is_table(table.id)]
    chosen = _chosen(source, kept, tables)
    others = [table for table in kept if table not in chosen]
    proof = Continuity.of(context.lake, captured)
    if any(table.id in proof.held.tables for table in others):
        proof.require()
    spark = context.ready(spark)
    recorded = RecordedStream(context.lake, source, proof)
    if proof.mismatch is not None:
        recorded.begin()
    else:
        recorded.join()
    published = source.publish(captured, always=context.published_always)
    # Changes of a table that is added to the publication again were not published meanwhile: it is re-read, too.
    again = [table for table in others if table.id in published.added]
    again = [table for table in again if table.id in context.lake.known(again)]
    names = published.names
    say_unread(context.lake, source, [t.id for t in chosen if t.id not in names], read=(), held=(), published=names)
    chosen = [table for table in [*chosen, *again] if table in published.live]
    chosen = without_clashes(context.lake, chosen, named=tables is not None)
    # A table whose folder cannot be used is reported once the others are read.
    unusable = context.lake.known_and_unusable(chosen)[1]
    usable = [table for table in chosen if table.id not in unusable]
    reports = take(context, source, spark, usable, on_progress, on_notification) if usable else []
    for error in unusable.values():
        raise error
    if not others:
        recorded.note_all_read()
    return reports


def _chosen(source: Source, captured: list[TableSchema], tables: Sequence[TableId] | None) -> list[TableSchema]:
    """Return the tables that are named; None: those of ``snapshot.include.collection.list``."""
    if tables is not None:
        return chosen_tables(captured, tables)
    return [table for table in captured if source.selection.includes_in_snapshot(table.id)]
