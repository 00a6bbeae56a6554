"""A comparison of lake tables with their source, from its request to its report.

request ─▶ tables, and which rows of each ─▶ one snapshot of the source ─▶ results ─▶ rows that differ, repaired
                                                                             └▶ journal, each as soon as it is known
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cdc_core.engine import ConnectorLake, RunFolder, TableRegistry, expect_server
from cdc_core.lake import (
    ChangelogCheck,
    KeyedRepair,
    LakeTable,
    ReconciliationLog,
    Records,
    SliceTask,
    epoch_of,
)
from cdc_core.lsn import Lsn
from cdc_core.postgres import ChunkConnection, Source
from cdc_core.reconcile.compare import Comparisons
from cdc_core.reconcile.journal import Journal
from cdc_core.reconcile.options import ReconcileOptions
from cdc_core.reconcile.pace import ReadPace
from cdc_core.reconcile.partial import ComparedPart
from cdc_core.reconcile.read_plan import StatementPlan
from cdc_core.reconcile.repair_run import RepairRun
from cdc_core.reconcile.reports import ReconcileReport, TableResult, left_out
from cdc_core.reconcile.run import ReconcileRun
from cdc_core.reconcile.slot_changes import SlotChanges
from cdc_core.reconcile.view import SourceView
from cdc_core.schema import TableId, TableSchema, streamed
from cdc_core.selection import chosen_tables
from cdc_core.spark import StartSession


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


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Comparisons of one connector's ``lake``. Can run while another process streams; any number at a time.

    ``journal`` is the file of results as they come, ``index`` the folder of key indexes on this machine. ``spark``
    starts a session for tables that are large; ``run_folder`` makes the folder of a repair's temporary files.
    """

    lake: ConnectorLake
    options: ReconcileOptions
    journal: Path
    index: Path
    spark: StartSession
    run_folder: Callable[[], RunFolder]

    def run(
        self,
        source: Source,
        captured: Sequence[TableSchema],
        tables: Sequence[TableId] | None,
        asked: ReconcileRequest,
        on_table: Callable[[TableResult], None] | None,
    ) -> ReconcileReport:
        """Compare the lake tables of ``tables`` (None: all) with the source under one snapshot of it.

        ``captured`` are the tables under the names that the stream has for them; ``on_table`` gets each result. Raises
        CdcError; what concerns one table alone is in its result.
        """
        tell = on_table or (lambda result: None)
        with closing(ChunkConnection(self.lake.postgres)) as bounds:
            expect_server(self.lake, source)
            records, silent = self._records(), source.unlogged()
            present = [*map(streamed, captured), *silent]
            gone = _gone(source, records, present, tables)
            asked_for = None if tables is None else [name for name in tables if name not in gone]
            named = present if asked_for is None else chosen_tables(present, asked_for)
            log = self._log()
            part = _part(log, asked, [table.id for table in named])
            journal = Journal.open(self.journal, log, part.kind, records.scope, resume=asked.resume)
            compared = [table for table in named if table not in silent and table.id not in journal.done]
            comparisons = self._comparisons(source, records, compared, asked)
            most_bytes = self.options.reconcile_changelog_bytes
            has_changelogs = part.kind == "all"
            changelogs = (
                ChangelogCheck(records.paths, records.scope, asked.limit, most_bytes) if has_changelogs else None
            )
            results = dict(journal.done)

            def note(result: TableResult) -> None:
                journal.note(result, lsn)
                tell(result)
                results[result.table] = result

            judged = []
            with SourceView.open(source, bounds) as view:
                lsn = view.shown.lsn
                for judgement in ReconcileRun(source, comparisons, part, changelogs).compare(compared, view):
                    note(judgement.result)
                    judged.append(judgement)
            if asked.repair and any(judgement.result.found.count for judgement in judged):
                with self._repairing(source, bounds, comparisons, changelogs, compared) as repairs:
                    for table, judgement in zip(compared, judged, strict=True):
                        if judgement.result.found.count:
                            note(repairs.repair(table, judgement))
            journal.close()
        unsent = "it is UNLOGGED, so the WAL does not contain its changes"
        absent = [left_out(name, "the source has no such table any more") for name in gone]
        for result in absent:
            tell(result)
        return ReconcileReport(
            lsn, (*(results.get(table.id) or left_out(table.id, unsent) for table in named), *absent)
        )

    def _records(self) -> Records:
        lake = self.lake
        return Records.read(lake.paths, lake.scope, lake.plan, lake.options.delete_modes, lake.snapshot.statement_of)

    def _log(self) -> ReconciliationLog:
        minutes, days = self.lake.options.lake_history_minutes, self.options.reconcile_keep_days
        return ReconciliationLog(self.lake.paths.reconciliations, minutes, days, epoch_of(self.lake.scope))

    def _comparisons(
        self, source: Source, records: Records, compared: list[TableSchema], asked: ReconcileRequest
    ) -> Comparisons:
        options = self.options
        slot = SlotChanges(
            self.lake.postgres,
            lambda: TableRegistry(source.catalog, source.includes(), compared),
            lambda: source.translator(source.catalog, compared),
            self.lake.plan,
            compared,
            options.reconcile_wait_seconds,
        )
        plan = StatementPlan(source, options.reconcile_rows_per_second, is_sample=asked.sample is not None)
        pace = ReadPace(options.reconcile_rows_per_second)
        return Comparisons(records, slot, plan, pace, asked.limit, self.spark, options.reconcile_spark_bytes)

    @contextmanager
    def _repairing(
        self,
        source: Source,
        bounds: ChunkConnection,
        comparisons: Comparisons,
        changelogs: ChangelogCheck | None,
        tables: Sequence[TableSchema],
    ) -> Iterator[RepairRun]:
        """Open what repairs tables, beside a run or without one."""
        lake = self.lake
        with self.run_folder() as folder, closing(ChunkConnection(lake.postgres)) as connection:
            checks = lake.checks(TableRegistry(source.catalog, source.includes(), tables))
            where = lake.paths, lake.scope, lake.plan
            task = SliceTask.of(lake.options, *where, checks, folder.path, folder.owner, self.index)
            repair = KeyedRepair(task, folder.path, self.options.reconcile_wait_seconds)
            yield RepairRun(source, bounds, comparisons, changelogs, repair, connection)


def _part(log: ReconciliationLog, asked: ReconcileRequest, tables: Sequence[TableId]) -> ComparedPart:
    """Return which rows are compared; a table that was never compared as a whole is."""
    if asked.sample is not None:
        return ComparedPart(sample=asked.sample, seed=time.time_ns())
    if asked.since is None:
        return ComparedPart()
    if not isinstance(asked.since, str):
        return ComparedPart(since=dict.fromkeys(tables, asked.since))
    last: dict[TableId, Lsn | datetime] = {}
    for result in log.read():
        if result.kind != "sample" and result.rows is not None:
            last[result.table] = result.lsn
    return ComparedPart(since=last, is_since=True)


def _gone(
    source: Source, records: Records, captured: Sequence[TableSchema], tables: Sequence[TableId] | None
) -> list[TableId]:
    """Return those of ``tables`` (None: of all) that have a lake table, and that the source does not have any more."""
    known = {table.id for table in captured}
    absent = []
    for name in sorted(records.histories) if tables is None else sorted({*tables} & {*records.histories}):
        if name not in known and source.catalog.current(name) is None:
            place = LakeTable(records.paths, records.scope, name).place()
            absent += [name] if place.token is not None else []
    return absent
