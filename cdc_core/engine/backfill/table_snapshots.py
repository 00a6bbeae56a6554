"""Reads tables into the lake of one connector: before the stream, beside it, and while it is paused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from cdc_core.engine.connector_lake import ConnectorLake
from cdc_core.engine.options import EngineOptions
from cdc_core.engine.run_state import RereadsFile
from cdc_core.engine.schema.trouble import trouble_of
from cdc_core.engine.start.pauses import pause_unread
from cdc_core.engine.start.recorded_stream import expect_server
from cdc_core.errors import CdcError, LakeError, LimitExceededError, NotJudgedError, TableError
from cdc_core.lake import FeaturePolicy, LakeTable
from cdc_core.lsn import Lsn
from cdc_core.postgres import Source, connect, doubtful_columns, sample_misfits
from cdc_core.schema import DroppedColumns, PauseCause, TableId, TableSchema, streamed
from cdc_core.snapshot import (
    OnProgress,
    SenderRenewal,
    SnapshotProgress,
    SnapshotReport,
    SnapshotRun,
    SnapshotSettings,
    UnsentChanges,
    in_reading_order,
)
from cdc_core.spark import GivenSession, Session, StartSession, received

_log = logging.getLogger(__name__)

# The stream reads the tables later, so the other tables' stream does not wait for long.
_LATER_SECONDS, _STREAM_SECONDS = 5.0, 1.0
_BY_RULES = (NotJudgedError, LimitExceededError)

Observed = Callable[[Sequence[TableId]], AbstractContextManager[OnProgress]]
"""Opens what observes a snapshot of tables: notifications, metrics, and the caller's progress."""


@dataclass(frozen=True, slots=True)
class TableSnapshots:
    """Snapshots of tables into ``lake``. ``source`` opens the server, ``ready`` returns a session for the lake.

    ``renewal_for`` says when the stream from a server is begun anew, None if never. ``rereads`` is the file that shows
    the progress of re-reads. ``always`` are operations that are published whatever the file says. Any thread may call
    the methods; they raise CdcError.
    """

    lake: ConnectorLake
    engine: EngineOptions
    source: Callable[[], Source]
    ready: Callable[[GivenSession], Session]
    renewal_for: Callable[[Source], SenderRenewal | None]
    rereads: RereadsFile
    always: str

    def take(
        self,
        source: Source,
        spark: Session,
        tables: Sequence[TableSchema],
        observed: Observed,
        *,
        later: bool = False,
    ) -> list[SnapshotReport]:
        """Replace the content of lake tables by the source's rows at one consistent point. Raises CdcError.

        Tables that cannot be read yet because of older transactions (``snapshot/unsent``) are left to the stream with
        ``later``, and a table that cannot be read because it is not UTF-8 is paused; else the error is raised after the
        other tables were read.
        """
        # Described again: the publication may have been created or changed since, and is part of a table's fingerprint.
        names = {table.id for table in tables}
        now = {table.id: streamed(table) for table in source.catalog.tables(names.__contains__)}
        tables = in_reading_order(source.catalog, [now.get(table.id, table) for table in tables], self.lake.snapshot)
        renewal, has_slot = self.renewal_for(source), source.slot().exists
        unsent = UnsentChanges(self.lake.paths, self.lake.scope, renewal if later else None)
        # The creation of a slot waits for older transactions itself.
        left = []
        if has_slot:
            left = unsent.left(source, tables, _LATER_SECONDS) if later else unsent.left(source, tables)
        # What the stream sends of these after it has read them may be wrong until it is begun anew.
        again = unsent.sent_otherwise(tables) if has_slot and renewal and not later else []
        ready = [table for table in tables if table not in left]
        reports: list[SnapshotReport] = []
        refused: Mapping[TableId, CdcError] = {}
        if ready:
            self._warn_of_misfits(ready)
            reports, refused = self._taken(source, spark, ready, observed)
        said = {table: trouble_of(error, table, self.lake.paths) for table, error in refused.items()}
        for table, trouble in said.items():
            cause = PauseCause.CHANGES_REFUSED if isinstance(refused[table], _BY_RULES) else PauseCause.FOLDER
            pause_unread(self.lake, {table: (trouble.reason, trouble.remedy)}, cause, "it could not be read")
        for table, trouble in said.items():
            if not later:
                raise TableError(trouble.reason, trouble.remedy, str(table))
        if left and not later:
            raise unsent.error(left)
        self._leave_to_stream(left, "is not read yet")
        self._leave_to_stream(again, "is read again by the stream")
        return reports

    def reread(
        self,
        numbers: Mapping[TableId, int],
        spark: StartSession,
        unsent: UnsentChanges,
        on_progress: OnProgress,
    ) -> Mapping[TableId, CdcError]:
        """Re-read tables into the lake while streaming continues; ``numbers`` are those of their new schema versions.

        ``unsent`` is the same object at every attempt: each waits for a moment only, because other tables may wait for
        their turn. Reports and errors are those of ``SnapshotRun.reread``; OlderTransactionsError is a table's error
        until the transactions have ended that it waits for.
        """
        with self.source() as source:
            readable = self._readable(source, numbers, unsent)
            errors = {**readable.failed, **{table.id: unsent.error([table]) for table in readable.waiting}}
            if not readable.tables:
                return errors

            def note(progress: SnapshotProgress) -> None:
                self.rereads.note(progress)
                on_progress(progress)

            try:
                with received("re-reading tables"):
                    run = self._run(source, spark(), readable.tables)
                    return errors | run.reread(readable.tables, readable.merged, numbers, note)
            finally:
                self.rereads.clear()

    def blocking(
        self, numbers: Mapping[TableId, int], spark: StartSession, unsent: UnsentChanges
    ) -> Mapping[TableId, SnapshotReport | CdcError]:
        """Read tables into the lake at one consistent point while streaming is paused; altered tables are left out.

        So are those that wait for older transactions (``unsent``, the same object at every attempt). ``numbers`` are
        those of the tables' new schema versions. The error of a table that cannot be read is its result.
        """
        with self.source() as source:
            readable = self._readable(source, numbers, unsent)
            if not readable.tables:
                return readable.failed
            with received("taking a blocking snapshot"):
                run = self._run(source, spark(), readable.tables)
                return {**readable.failed, **run.take_together(readable.tables, readable.merged, numbers)}

    def leave_unread(self, source: Source, tables: Sequence[TableSchema]) -> None:
        """Record that the stream is to read published tables of which the lake has nothing.

        Elsewhere a new table is read after its first change; its changes so far may be missing in the stream here.
        """
        published, known = set(source.published()), self.lake.known(tables)
        histories = self.lake.schema_log.read()
        recorded = {table for table, history in histories.items() if history.reread is not None}
        unread = [table for table in tables if table.id in published and table.id not in known | recorded]
        chosen = [table for table in unread if source.selection.includes_in_snapshot(table.id)]
        self._leave_to_stream(chosen, "is not read yet")

    def _warn_of_misfits(self, tables: Sequence[TableSchema]) -> None:
        """Log the numeric columns of which the lake will not hold some values, from a sample."""
        selection = self.lake.plan.selection
        concerned = [table for table in tables if doubtful_columns(table, selection)]
        if not concerned:
            return
        with connect(self.lake.postgres) as connection:
            for misfit in sample_misfits(connection, concerned, selection):
                _log.warning("%s", misfit)

    def _leave_to_stream(self, tables: Sequence[TableSchema], what: str) -> None:
        """Record that the stream is to read tables, which it does once their older transactions have ended."""
        if not tables:
            return
        log = self.lake.schema_log
        histories = log.read()
        for table in tables:
            known = histories.get(table.id)
            reason = "it was published while older transactions were open, and is read after they have ended"
            log.want_reread(table.id, reason, max(known.versions, default=0) if known is not None else 0, 0)
            _log.warning("%s %s: %s", table.id, what, reason)

    def _taken(
        self,
        source: Source,
        spark: Session,
        tables: Sequence[TableSchema],
        observed: Observed,
    ) -> tuple[list[SnapshotReport], Mapping[TableId, CdcError]]:
        """Return the reports, and the errors of the tables that could not be read alone."""
        with observed([table.id for table in tables]) as listen, received("reading tables into the lake"):
            run = self._run(source, spark, tables)
            taken = run.take(tables, listen)
        custom = self.lake.snapshot.custom
        if custom is not None:
            custom.completed()
        return taken, run.refused

    def _readable(self, source: Source, names: Collection[TableId], unsent: UnsentChanges) -> _Readable:
        expect_server(self.lake, source)
        tables = [streamed(table) for table in source.catalog.tables(names.__contains__)]
        gone = set(names) - {table.id for table in tables}
        failed: dict[TableId, CdcError] = {
            table: TableError(
                f"{table} no longer exists in the source.", f"Create it again, or leave {table} out.", str(table)
            )
            for table in gone
        }
        merged: dict[TableId, Lsn | None] = {}
        for table in tables:
            try:
                lsn = LakeTable(self.lake.paths, self.lake.scope, table.id).place().lsn
                merged[table.id] = None if lsn is None else Lsn(lsn)
            except LakeError as error:
                failed[table.id] = error
        waiting = unsent.left(source, tables, _STREAM_SECONDS)
        ready = [table for table in tables if table.id in merged and table not in waiting]
        return _Readable(ready, merged, [table for table in waiting if table.id in merged], failed)

    def _run(self, source: Source, spark: Session, tables: Sequence[TableSchema]) -> SnapshotRun:
        lake, options = self.lake, self.lake.options
        settings = SnapshotSettings(
            lake.snapshot,
            self.engine.snapshot_rows_per_partition,
            self.engine.snapshot_threads,
            lake.scope,
            options.changelog_reads,
            options.lake_history_minutes,
            FeaturePolicy.of(options),
            options.delete_modes,
            options.lake_dropped_columns is DroppedColumns.KEEP,
            options.lake_catalog_database,
            lake.checks(tables) if lake.quality.quality_enabled else None,
        )
        return SnapshotRun(source, spark, lake.paths, lake.plan, settings)


@dataclass(frozen=True, slots=True)
class _Readable:
    """Tables that can be read now, with the LSNs up to which they are merged; those that wait for older transactions;
    the errors of those that cannot be read.
    """

    tables: list[TableSchema]
    merged: dict[TableId, Lsn | None]
    waiting: list[TableSchema]
    failed: dict[TableId, CdcError]
