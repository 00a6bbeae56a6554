"""Snapshots of tables into the lake, shared by several operations."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.metrics import meter
from cdc_core.assemble.notifications import open_notifier
from cdc_core.assemble.quality import table_checks
from cdc_core.engine import RereadsFile, expect_server, pause_unread, trouble_of
from cdc_core.errors import CdcError, LakeError, LimitExceededError, NotJudgedError, TableError
from cdc_core.lake import FeaturePolicy
from cdc_core.lsn import Lsn
from cdc_core.postgres import Source, connect, doubtful_columns, sample_misfits
from cdc_core.schema import DroppedColumns, PauseCause, TableId, TableSchema, streamed
from cdc_core.snapshot import (
    OLDER_SECONDS,
    OnNotification,
    OnProgress,
    SnapshotProgress,
    SnapshotReport,
    SnapshotRun,
    SnapshotSettings,
    UnsentChanges,
    newly_published,
    notify_of_snapshot,
    sent_as,
    still_open,
)

_log = logging.getLogger(__name__)

# The stream reads the tables later, so the other tables' stream does not wait for long.
_LATER_SECONDS, _STREAM_SECONDS = 5.0, 1.0
_BY_RULES = (NotJudgedError, LimitExceededError)


def take(
    context: RunContext,
    source: Source,
    spark: Any,
    tables: Sequence[TableSchema],
    on_progress: OnProgress | None,
    on_notification: OnNotification | None = None,
    *,
    later: bool = False,
) -> list[SnapshotReport]:
    """Replace the content of lake tables by the source's rows at one consistent point. Raises CdcError.

    Tables that cannot be read yet because of older transactions (``snapshot/unsent``) are left to the stream with
    ``later``, and a table that cannot be read because it is not UTF-8 is paused; else the error is raised after the
    other tables were read.
    """
    # Described again: the publication may have been created or changed since, and is part of a table's fingerprint.
    wanted = {table.id for table in tables}
    now = {table.id: streamed(table) for table in source.catalog.tables(wanted.__contains__)}
    tables = context.in_reading_order(source, [now.get(table.id, table) for table in tables])
    renewal, has_slot = context.renewal_for(source), source.slot().exists
    unsent = UnsentChanges(context.lake.paths, context.lake.scope, renewal if later else None)
    # The creation of a slot waits for older transactions itself.
    seconds = _LATER_SECONDS if later else OLDER_SECONDS
    left = unsent.left(source, tables, seconds) if has_slot else []
    # What the stream sends of these after it has read them may be wrong until it is begun anew.
    again = (
        newly_published(context.lake.paths, context.lake.scope, tables, sent_as)
        if has_slot and renewal and not later
        else []
    )
    ready = [table for table in tables if table not in left]
    reports: list[SnapshotReport] = []
    refused: Mapping[TableId, CdcError] = {}
    if ready:
        _warn_of_misfits(context, ready)
        reports, refused = _taken(context, source, spark, ready, on_progress, on_notification)
    said = {table: trouble_of(error, table, context.lake.paths) for table, error in refused.items()}
    for table, one in said.items():
        cause = PauseCause.CHANGES_REFUSED if isinstance(refused[table], _BY_RULES) else PauseCause.FOLDER
        pause_unread(context.lake, {table: (one.reason, one.remedy)}, cause, "it could not be read")
    for table, one in said.items():
        if not later:
            raise TableError(one.reason, one.remedy, str(table))
    if left and not later:
        raise still_open(left)
    _leave_to_stream(context, left, "is not read yet")
    _leave_to_stream(context, again, "is read again by the stream")
    return reports


def _warn_of_misfits(context: RunContext, tables: Sequence[TableSchema]) -> None:
    """Log the numeric columns of which the lake will not hold some values, from a sample."""
    selection = context.config.selection
    concerned = [table for table in tables if doubtful_columns(table, selection)]
    if not concerned:
        return
    with connect(context.config.postgres) as connection:
        for found in sample_misfits(connection, concerned, selection):
            _log.warning("%s", found)


def _leave_to_stream(context: RunContext, tables: Sequence[TableSchema], what: str) -> None:
    """Record that the stream is to read tables, which it does once their older transactions have ended."""
    from cdc_core.lake import SchemaLog, lake_properties

    if not tables:
        return
    log = SchemaLog(context.lake.paths.schema_versions, lake_properties(context.config.lake.lake_history_minutes))
    histories = log.read()
    for table in tables:
        known = histories.get(table.id)
        reason = "it was published while older transactions were open, and is read after they have ended"
        log.want_reread(table.id, reason, max(known.versions, default=0) if known is not None else 0, 0)
        _log.warning("%s %s: %s", table.id, what, reason)


def leave_unread_to_stream(context: RunContext, source: Source, tables: Sequence[TableSchema]) -> None:
    """Record that the stream is to read published tables of which the lake has nothing.

    Elsewhere a new table is read after its first change; its changes so far may be missing in the stream here.
    """
    from cdc_core.lake import SchemaLog

    published, known = set(source.published()), context.lake.known(tables)
    histories = SchemaLog(context.lake.paths.schema_versions, {}).read()
    recorded = {table for table, history in histories.items() if history.reread is not None}
    unread = [table for table in tables if table.id in published and table.id not in known | recorded]
    chosen = [table for table in unread if source.selection.includes_in_snapshot(table.id)]
    _leave_to_stream(context, chosen, "is not read yet")


def _taken(
    context: RunContext,
    source: Source,
    spark: Any,
    tables: Sequence[TableSchema],
    on_progress: OnProgress | None,
    on_notification: OnNotification | None,
) -> tuple[list[SnapshotReport], Mapping[TableId, CdcError]]:
    """Return the reports, and the errors of the tables that could not be read alone."""
    from cdc_core.spark import received

    metered = meter(context)
    with (
        open_notifier(context, metered.notification(on_notification)) as notifier,
        notify_of_snapshot(notifier, [table.id for table in tables], metered.progress(on_progress)) as listen,
        received("reading tables into the lake"),
    ):
        run = _run(context, source, spark, tables)
        taken = run.take(tables, listen)
    custom = context.config.snapshot.custom
    if custom is not None:
        custom.completed()
    return taken, run.refused


def reread(
    context: RunContext,
    numbers: Mapping[TableId, int],
    spark: Callable[[], Any],
    unsent: UnsentChanges,
    on_progress: OnProgress,
) -> Mapping[TableId, CdcError]:
    """Re-read tables into the lake while streaming continues; ``numbers`` are those of their new schema versions.

    ``unsent`` is the same object at every attempt: each waits for a moment only, because other tables may wait for
    their turn. Reports and errors are those of ``SnapshotRun.reread``; OlderTransactionsError is a table's error until
    the transactions have ended that it waits for.
    """
    from cdc_core.spark import received

    with context.source() as source:
        found = _readable(context, source, numbers, unsent)
        renews = context.renewal_for(source) is not None
        errors = {**found.failed, **{table.id: still_open([table], renews=renews) for table in found.waiting}}
        if not found.tables:
            return errors
        file = RereadsFile(context.config.state_path, context.name, context.slot)

        def note(progress: SnapshotProgress) -> None:
            file.note(progress)
            on_progress(progress)

        try:
            with received("re-reading tables"):
                run = _run(context, source, spark(), found.tables)
                return errors | run.reread(found.tables, found.merged, numbers, note)
        finally:
            file.clear()


def blocking_snapshot(
    context: RunContext, numbers: Mapping[TableId, int], spark: Callable[[], Any], unsent: UnsentChanges
) -> Mapping[TableId, SnapshotReport | CdcError]:
    """Read tables into the lake at one consistent point while streaming is paused; altered tables are left out.

    So are those that wait for older transactions (``unsent``, the same object at every attempt). ``numbers`` are the
    numbers of the tables' new schema versions. The error of a table that cannot be read is its result.
    """
    from cdc_core.spark import received

    with context.source() as source:
        found = _readable(context, source, numbers, unsent)
        if not found.tables:
            return found.failed
        with received("taking a blocking snapshot"):
            run = _run(context, source, spark(), found.tables)
            return {**found.failed, **run.take_together(found.tables, found.merged, numbers)}


@dataclass(frozen=True, slots=True)
class _Readable:
    """Tables that can be read now, with the LSNs up to which they are merged; those that wait for older transactions;
    the errors of those that cannot be read.
    """

    tables: list[TableSchema]
    merged: dict[TableId, Lsn | None]
    waiting: list[TableSchema]
    failed: dict[TableId, CdcError]


def _readable(context: RunContext, source: Source, wanted: Collection[TableId], unsent: UnsentChanges) -> _Readable:
    from cdc_core.lake import LakeTable

    expect_server(context.lake, source)
    tables = [streamed(table) for table in source.catalog.tables(wanted.__contains__)]
    gone = set(wanted) - {table.id for table in tables}
    failed: dict[TableId, CdcError] = {
        table: TableError(
            f"{table} no longer exists in the source.", f"Create it again, or leave {table} out.", str(table)
        )
        for table in gone
    }
    merged: dict[TableId, Lsn | None] = {}
    for table in tables:
        try:
            lsn = LakeTable(context.lake.paths, context.lake.scope, table.id).place().lsn
            merged[table.id] = None if lsn is None else Lsn(lsn)
        except LakeError as error:
            failed[table.id] = error
    waiting = unsent.left(source, tables, _STREAM_SECONDS)
    ready = [table for table in tables if table.id in merged and table not in waiting]
    return _Readable(ready, merged, [table for table in waiting if table.id in merged], failed)


def _run(context: RunContext, source: Source, spark: Any, tables: Sequence[TableSchema]) -> SnapshotRun:
    config = context.config
    settings = SnapshotSettings(
        config.snapshot,
        config.engine.snapshot_rows_per_partition,
        config.engine.snapshot_threads,
        context.lake.scope,
        config.lake.changelog_reads,
        config.lake.lake_history_minutes,
        FeaturePolicy.of(config.lake),
        config.lake.delete_modes,
        config.lake.lake_dropped_columns is DroppedColumns.KEEP,
        config.lake.lake_catalog_database,
        table_checks(context, tables) if config.quality.quality_enabled else None,
    )
    return SnapshotRun(source, spark, context.lake.paths, context.plan, settings)
