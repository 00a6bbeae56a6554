"""Opens the sink that writes the stream's batches to the lake."""

from __future__ import annotations

from collections.abc import Callable

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.lake_signals import lake_with_signals
from cdc_core.assemble.slot_destination import OpenedSink, SinkParts
from cdc_core.engine import (
    Catalogue,
    CatalogueWatch,
    ConnectorLake,
    KnownTables,
    Lake,
    LakeSink,
    Pauses,
    RunFolder,
    SchemaDecisions,
    SchemaVersions,
    SourceWatch,
    TableRegistry,
    uncarried,
)
from cdc_core.lake import LakeTable, LakeTables, LakeWriter, SchemaSteps, SliceTask, Work
from cdc_core.postgres import Source
from cdc_core.schema import Decision, PauseCause, TableSchema, Verdict
from cdc_core.snapshot import Rereads, UnsentChanges
from cdc_core.spark import StartSession


def open_lake_sink(context: RunContext, parts: SinkParts) -> OpenedSink:
    """Open the sink that writes to the lake and processes signals."""
    source = parts.source
    lake = open_lake(context, source, parts.registry, parts.spark, parts.folder)
    # A table of the lake that became UNLOGGED while no run was active is paused by the comparison of fingerprints.
    silent = context.lake.known(source.unlogged())
    captured = [table for table in parts.tables if source.selection.is_table(table.id)]
    positions = lake.positions([*(table.id for table in captured), *silent])
    lake.leave_out(source.selection.is_table)
    sink, signals = lake_with_signals(context, lake, captured, parts)
    return OpenedSink(sink, positions, signals)


def open_lake(
    context: RunContext,
    source: Source,
    registry: TableRegistry,
    spark: StartSession,
    folder: RunFolder,
    *,
    records_rounds: bool = True,
) -> LakeSink:
    """The sink that writes to the lake; it must be closed. ``records_rounds``: see ``LakeSink``."""
    config, lake = context.config, context.lake
    checks = context.lake.checks(registry)
    catalog = source.catalog
    catalog.types.load_enums()
    watch = _source_watch(context, source, catalog, spark)
    writer = LakeWriter.of(config.lake, folder.path, folder.owner, config.state_path.absolute() / "index")
    tables = LakeTables.of(config.lake)
    known = {*config.snapshot.select_statements, *(table.id for table in source.selected)}
    partly = frozenset(table for table in known if config.snapshot.statement_of(table))
    task = SliceTask(folder.owner.run, lake.scope, lake.paths, lake.plan, checks, tables, writer, partly)
    return LakeSink(
        Lake(lake.paths, lake.scope, lake.options),
        Work(spark, task, config.engine.slice_split_rows),
        registry,
        watch,
        records_rounds=records_rounds,
        docs_path=config.quality.quality_docs_path,
    )


def _refusing(lake: ConnectorLake, source: Source) -> Callable[[TableSchema], Decision | None]:
    """Return the function that refuses tables whose changes would not find their rows in the lake."""

    def refused(table: TableSchema) -> Decision | None:
        fault = uncarried(lake, source, table)
        if fault is None:
            return None
        return Decision(Verdict.REFUSE, reason=fault.reason, cause=PauseCause.NOT_CARRIED, action=fault.action)

    return refused


def _source_watch(context: RunContext, source: Source, catalogue: Catalogue, spark: StartSession) -> SourceWatch:
    """What follows when the source's tables themselves change; reads what the lake has recorded of them."""
    lake = context.lake
    paths, policy, log = lake.paths, lake.options.schema_policy, lake.schema_log
    tables = KnownTables(log)
    pauses = Pauses(log, tables, catalogue, policy)
    steps = SchemaSteps(lake.plan, lambda table: LakeTable(paths, lake.scope, table).schema())
    decisions = SchemaDecisions(steps, policy, _refusing(lake, source))
    versions = SchemaVersions(log, tables, pauses, steps, decisions, reads_new_tables=lake.mode.first)
    unsent = UnsentChanges(paths, lake.scope, context.renewal_for(source))
    rereads = Rereads(lambda numbers, listen: context.snapshots.reread(numbers, spark, unsent, listen))
    compared = CatalogueWatch(catalogue, tables, pauses, decisions, versions)
    return SourceWatch(tables, pauses, versions, compared, rereads, source.wal_lsn)
