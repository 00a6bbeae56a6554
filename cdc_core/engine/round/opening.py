"""Opens the sink that writes to the lake of one connector, with what follows when the source's tables change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from cdc_core.engine.backfill.table_snapshots import TableSnapshots
from cdc_core.engine.connector_lake import ConnectorLake
from cdc_core.engine.reading.tables import TableRegistry
from cdc_core.engine.round.lake import Lake, SourceWatch
from cdc_core.engine.round.lake_sink import LakeSink
from cdc_core.engine.run_folder import RunFolder
from cdc_core.engine.schema.catalogue_watch import CatalogueWatch
from cdc_core.engine.schema.decisions import SchemaDecisions
from cdc_core.engine.schema.known_tables import KnownTables
from cdc_core.engine.schema.pauses import Pauses
from cdc_core.engine.schema.versions import SchemaVersions
from cdc_core.engine.start.misfits import uncarried
from cdc_core.errors import CdcError
from cdc_core.lake import LakeTable, SchemaSteps, SliceTask, Work
from cdc_core.postgres import Source
from cdc_core.schema import Decision, PauseCause, TableId, TableSchema, Verdict
from cdc_core.snapshot import OnProgress, Rereads, SnapshotProgress, UnsentChanges
from cdc_core.spark import StartSession


def open_lake_sink(
    snapshots: TableSnapshots,
    source: Source,
    registry: TableRegistry,
    spark: StartSession,
    folder: RunFolder,
    index: Path,
    *,
    records_rounds: bool = True,
    note_read: OnProgress = lambda progress: None,
    note_gone: Callable[[TableId], None] = lambda table: None,
) -> LakeSink:
    """Open the sink of the lake that ``snapshots`` reads into; the caller closes it.

    ``index`` is the folder of key indexes on this machine. ``records_rounds``: see ``LakeSink``. ``note_read`` gets the
    progress of re-reads, in their thread, ``note_gone`` as in ``CatalogueWatch``. Raises CdcError.
    """
    lake = snapshots.lake
    source.catalog.types.load_enums()
    known = {*lake.snapshot.select_statements, *(table.id for table in source.selected)}
    partly = frozenset(table for table in known if lake.snapshot.statement_of(table))
    task = SliceTask.of(
        lake.options, lake.paths, lake.scope, lake.plan, lake.checks(registry), folder.path, folder.owner, index, partly
    )
    return LakeSink(
        Lake(lake.paths, lake.scope, lake.options, snapshots.engine.freshness, folder.owner.run),
        Work(spark, task, snapshots.engine.slice_split_rows),
        registry,
        _source_watch(snapshots, source, spark, note_read, note_gone),
        records_rounds=records_rounds,
        docs_path=lake.quality.quality_docs_path,
    )


def _source_watch(
    snapshots: TableSnapshots,
    source: Source,
    spark: StartSession,
    note_read: OnProgress,
    note_gone: Callable[[TableId], None],
) -> SourceWatch:
    """What follows when the source's tables themselves change; reads what the lake has recorded of them."""
    lake, catalogue = snapshots.lake, source.catalog
    paths, policy, log = lake.paths, lake.options.schema_policy, lake.schema_log
    tables = KnownTables(log)
    pauses = Pauses(log, tables, catalogue, policy)
    steps = SchemaSteps(lake.plan, lambda table: LakeTable(paths, lake.scope, table).schema())
    decisions = SchemaDecisions(steps, policy, _refusing(lake, source))
    versions = SchemaVersions(log, tables, pauses, steps, decisions, reads_new_tables=lake.mode.first)
    unsent = UnsentChanges(paths, lake.scope, snapshots.renewal_for(source))

    def reread(numbers: Mapping[TableId, int], listen: OnProgress) -> Mapping[TableId, CdcError]:
        def note(progress: SnapshotProgress) -> None:
            note_read(progress)
            listen(progress)

        return snapshots.reread(numbers, spark, unsent, note)

    rereads = Rereads(reread)
    compared = CatalogueWatch(catalogue, tables, pauses, decisions, versions, note_gone)
    return SourceWatch(tables, pauses, versions, compared, rereads, source.wal_lsn)


def _refusing(lake: ConnectorLake, source: Source) -> Callable[[TableSchema], Decision | None]:
    """Return the function that refuses tables whose changes would not find their rows in the lake."""

    def refused(table: TableSchema) -> Decision | None:
        fault = uncarried(lake, source, table)
        if fault is None:
            return None
        return Decision(Verdict.REFUSE, reason=fault.reason, cause=PauseCause.NOT_CARRIED, action=fault.action)

    return refused
