"""Operation ``reconcile``: compares lake tables with their source, and repairs rows that differ."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.prerequisites import chosen_tables
from cdc_core.assemble.quality import table_checks
from cdc_core.assemble.signals.own_file import lake_digest
from cdc_core.engine import TableRegistry, expect_server
from cdc_core.lsn import Lsn
from cdc_core.postgres import ChunkConnection, Source
from cdc_core.schema import TableId, TableSchema, streamed
from cdc_core.selection import ROW_OPERATIONS

if TYPE_CHECKING:  # loads Arrow, which most callers do not need
    from cdc_core.lake import ChangelogCheck, ReconciliationLog, Records
    from cdc_core.reconcile import ComparedPart, Comparisons, ReconcileReport, RepairRun, SlotChanges, TableResult


@dataclass(frozen=True, slots=True)
class ReconcileRequest:
    """What a comparison is asked for: ``limit`` is the number of keys of each kind that are named.

    ``repair``: rows that differ are read again and written. ``sample``: the number of ranges of each side that are
    compared, None for all rows. ``since``: only keys that changed after an LSN, or since a time, are compared; "last"
    for the LSN of the last comparison of all rows, or of those that had changed. ``resume``: results of a comparison
    that was interrupted are kept.
    """

    limit: int = 1000
    repair: bool = False
    sample: int | None = None
    since: Lsn | datetime | str | None = None
    resume: bool = False


def reconcile(
    context: RunContext,
    tables: Sequence[TableId] | None,
    asked: ReconcileRequest,
    on_table: Callable[[TableResult], None] | None,
) -> ReconcileReport:
    """Compare the lake tables of ``tables`` (None: of all captured ones) with the source under one snapshot of it.

    Raises CdcError; what concerns one table alone is in its result.
    """
    from cdc_core.reconcile import Journal, ReconcileReport, ReconcileRun, SourceView, left_out

    config, tell = context.config, on_table or (lambda result: None)
    with context.source() as source, closing(ChunkConnection(config.postgres)) as bounds:
        expect_server(context.lake, source)
        captured, silent = _captured(context, source)
        records = _records(context)
        gone = _gone(source, records, [*captured, *silent], tables)
        wanted = None if tables is None else [name for name in tables if name not in gone]
        named = [*captured, *silent] if wanted is None else chosen_tables([*captured, *silent], wanted)
        part = _part(context, asked, [table.id for table in named])
        journal = Journal.open(_journal(context), _log(context), part.kind, records.scope, resume=asked.resume)
        compared = [table for table in named if table not in silent and table.id not in journal.done]
        slot = _slot_changes(context, source, compared)
        comparisons = _comparisons(context, source, records, slot, asked)
        changelogs = _changelog_check(context, records, asked) if part.kind == "all" else None
        results = dict(journal.done)

        def note(result: TableResult) -> None:
            journal.note(result, lsn)
            tell(result)
            results[result.table] = result

        found = []
        with SourceView.open(source, bounds) as view:
            lsn = view.shown.lsn
            for each in ReconcileRun(source, comparisons, part, changelogs).compare(compared, view):
                note(each.result)
                found.append(each)
        if asked.repair and any(each.result.found.count for each in found):
            with _repair_run(context, source, bounds, comparisons, changelogs, compared) as run:
                for table, each in zip(compared, found, strict=True):
                    if each.result.found.count:
                        note(run.repair(table, each))
        journal.close()
        unsent = "it is UNLOGGED, so the WAL does not contain its changes"
        absent = [left_out(name, "the source has no such table any more") for name in gone]
        for result in absent:
            tell(result)
        told_of = [results.get(table.id) or left_out(table.id, unsent) for table in named]
        return ReconcileReport(lsn, (*told_of, *absent))


def _slot_changes(context: RunContext, source: Source, compared: list[TableSchema]) -> SlotChanges:
    """What is in the slot of the tables that are compared."""
    from cdc_core.reconcile import SlotChanges

    return SlotChanges(
        context.config.postgres,
        lambda: TableRegistry(source.catalog, source.includes(), compared),
        lambda: source.translator(source.catalog, compared),
        context.plan,
        compared,
        context.config.reconcile.reconcile_wait_seconds,
    )


def _comparisons(
    context: RunContext, source: Source, records: Records, slot: SlotChanges, asked: ReconcileRequest
) -> Comparisons:
    from cdc_core.reconcile import Comparisons, ReadPace, ReadPlan

    options = context.config.reconcile
    plan = ReadPlan(source, options.reconcile_rows_per_second, is_sample=asked.sample is not None)
    pace = ReadPace(options.reconcile_rows_per_second)
    return Comparisons(records, slot, plan, pace, asked.limit, context.spark, options.reconcile_spark_bytes)


def _changelog_check(context: RunContext, records: Records, asked: ReconcileRequest) -> ChangelogCheck:
    from cdc_core.lake import ChangelogCheck

    most_bytes = context.config.reconcile.reconcile_changelog_bytes
    return ChangelogCheck(records.paths, records.scope, asked.limit, most_bytes)


def _journal(context: RunContext) -> Path:
    return context.config.state_path.resolve() / f"reconcile-{context.slot}-{lake_digest(context)}.json"


def _log(context: RunContext) -> ReconciliationLog:
    from cdc_core.lake import ReconciliationLog

    config = context.config
    keep = config.reconcile.reconcile_keep_days
    return ReconciliationLog(context.lake.paths.reconciliations, config.lake.lake_history_minutes, keep)


def _part(context: RunContext, asked: ReconcileRequest, tables: Sequence[TableId]) -> ComparedPart:
    """Which rows are compared; a table that was never compared as a whole is."""
    from cdc_core.lake import epoch_of, read_reconciliations
    from cdc_core.reconcile import ComparedPart

    if asked.sample is not None:
        return ComparedPart(sample=asked.sample, seed=time.time_ns())
    if asked.since is None:
        return ComparedPart()
    if not isinstance(asked.since, str):
        return ComparedPart(since=dict.fromkeys(tables, asked.since))
    last: dict[TableId, Lsn | datetime] = {}
    for each in read_reconciliations(context.lake.paths.reconciliations, epoch_of(context.lake.scope)):
        if each.kind != "sample" and each.rows is not None:
            last[each.table] = each.lsn
    return ComparedPart(since=last, is_since=True)


@contextmanager
def _repair_run(
    context: RunContext,
    source: Source,
    bounds: ChunkConnection,
    comparisons: Comparisons,
    changelogs: ChangelogCheck | None,
    tables: Sequence[TableSchema],
) -> Iterator[RepairRun]:
    """What repairs tables, beside a run or without one."""
    from cdc_core.lake import LakeTables, LakeWriter, SliceTask
    from cdc_core.reconcile import Repair, RepairRun

    config = context.config
    with context.run_folder() as folder, closing(ChunkConnection(config.postgres)) as connection:
        index = config.state_path.absolute() / "index"
        writer = LakeWriter.of(config.lake, folder.path, folder.owner, index)
        lakes = LakeTables.of(config.lake)
        checks = table_checks(context, TableRegistry(source.catalog, source.includes(), tables))
        task = SliceTask(folder.owner.run, context.lake.scope, context.lake.paths, context.plan, checks, lakes, writer)
        wait = config.reconcile.reconcile_wait_seconds
        repair = Repair(connection, task, folder.path, comparisons.slot, wait)
        yield RepairRun(source, bounds, comparisons, changelogs, repair)


def _captured(context: RunContext, source: Source) -> tuple[list[TableSchema], list[TableSchema]]:
    """Return the captured tables under the names that the stream has for them, and those that are UNLOGGED."""
    found = context.captured(source)
    return [streamed(table) for table in found], source.unlogged()


def _gone(
    source: Source, records: Records, captured: Sequence[TableSchema], tables: Sequence[TableId] | None
) -> list[TableId]:
    """Return those of ``tables`` (None: of all) that have a lake table, and that the source does not have any more."""
    from cdc_core.lake import LakeTable

    known = {table.id for table in captured}
    found = []
    for name in sorted(records.histories) if tables is None else sorted({*tables} & {*records.histories}):
        if name not in known and source.catalog.current(name) is None:
            place = LakeTable(records.paths, records.scope, name).place()
            found += [name] if place.token is not None else []
    return found


def _records(context: RunContext) -> Records:
    from cdc_core.lake import Records, SchemaLog, epoch_of, read_snapshots

    config, paths, scope = context.config, context.lake.paths, context.lake.scope
    return Records(
        paths,
        scope,
        context.plan,
        config.lake.delete_modes,
        config.snapshot.statement_of,
        frozenset(config.selection.skipped_operations) & ROW_OPERATIONS,
        SchemaLog(paths.schema_versions, {}).read(),
        read_snapshots(paths.snapshots, epoch_of(scope)),
    )
