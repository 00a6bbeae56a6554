"""Opens the sink of the stream's batches: the lake, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.quality import table_checks
from cdc_core.assemble.signals.lake import lake_with_signals
from cdc_core.assemble.table_snapshots import reread
from cdc_core.engine.reading.batch_builder import SignalTable
from cdc_core.engine.reading.tables import TableRegistry
from cdc_core.engine.round.lake import Lake, SourceWatch, Work
from cdc_core.engine.round.lake_sink import LakeSink
from cdc_core.engine.run_folder import RunFolder
from cdc_core.engine.schema.catalogue import Catalogue
from cdc_core.engine.schema.catalogue_watch import CatalogueWatch
from cdc_core.engine.schema.decisions import SchemaDecisions
from cdc_core.engine.schema.known_tables import KnownTables
from cdc_core.engine.schema.pauses import Pauses
from cdc_core.engine.schema.steps import SchemaSteps
from cdc_core.engine.schema.versions import SchemaVersions
from cdc_core.engine.stream.noop import NoopSink
from cdc_core.engine.stream.run import Sink
from cdc_core.lake.slice.lake_tables import LakeTables
from cdc_core.lake.slice.task import SliceTask
from cdc_core.lake.slice.write import LakeWriter
from cdc_core.postgres.source import Source
from cdc_core.schema.changes import Decision, PauseCause, Verdict
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.snapshot.notifications import Notifier
from cdc_core.snapshot.reread import Rereads
from cdc_core.snapshot.signals.channels import Inbox
from cdc_core.snapshot.unsent import UnsentChanges


def open_sink(
    context: RunContext,
    source: Source,
    registry: TableRegistry,
    spark: Callable[[], Any],
    tables: list[TableSchema],
    folder: RunFolder,
    notifier: Notifier,
    inbox: Inbox | None,
    should_stop: Callable[[], bool] | None = None,
    forward: Inbox | None = None,
) -> tuple[Sink, dict[TableId, Any], SignalTable | None]:
    """Open the sink of ``wal2lake.sinks``; returns it, the changelogs' positions, and the signal table (or None).

    ``forward`` gets signals of all channels but the source's.
    """
    if "noop" in context.config.engine.sinks:
        return NoopSink(spark, context.plan, folder.owner), {}, None
    lake = open_lake(context, source, registry, spark, folder)
    # A table of the lake that became UNLOGGED while no run was active is paused by the comparison of fingerprints.
    silent = context.known_tables(source.unlogged())
    captured = [table for table in tables if source.selection.is_table(table.id)]
    positions = lake.positions([*(table.id for table in captured), *silent])
    lake.leave_out(source.selection.is_table)
    sink, signals = lake_with_signals(context, source, lake, captured, spark, notifier, inbox, should_stop, forward)
    return sink, positions, signals


def open_lake(
    context: RunContext,
    source: Source,
    registry: TableRegistry,
    spark: Callable[[], Any],
    folder: RunFolder,
    *,
    records_rounds: bool = True,
) -> LakeSink:
    """The sink that writes to the lake; it must be closed. ``records_rounds``: see ``LakeSink``."""
    config, plan, paths = context.config, context.plan, context.paths
    checks = table_checks(context, registry)
    catalog = source.catalog
    catalog.types.load_enums()
    watch = _source_watch(context, source, catalog, spark)
    writer = LakeWriter.of(config.lake, folder.path, folder.owner, config.state_path.absolute() / "index")
    tables = LakeTables.of(config.lake)
    known = {*config.snapshot.select_statements, *(table.id for table in source.selected)}
    partly = frozenset(table for table in known if config.snapshot.statement_of(table))
    task = SliceTask(folder.owner.run, context.scope, paths, plan, checks, tables, writer, partly)
    return LakeSink(
        Lake(paths, context.scope, config.lake),
        Work(spark, task, config.engine.slice_split_rows),
        registry,
        watch,
        records_rounds=records_rounds,
        docs_path=config.quality.quality_docs_path,
    )


def _refusing(context: RunContext, source: Source) -> Callable[[TableSchema], Decision | None]:
    """Return the function that refuses tables whose changes would not find their rows in the lake."""

    def uncarried(table: TableSchema) -> Decision | None:
        found = context.uncarried(source, table)
        if found is None:
            return None
        return Decision(Verdict.REFUSE, reason=found.reason, cause=PauseCause.NOT_CARRIED, action=found.action)

    return uncarried


def _source_watch(context: RunContext, source: Source, catalogue: Catalogue, spark: Callable[[], Any]) -> SourceWatch:
    """What follows when the source's tables themselves change; reads what the lake has recorded of them."""
    from cdc_core.lake.delta.table import DeltaTable
    from cdc_core.lake.schema.lake_schema import lake_properties
    from cdc_core.lake.stores.schema_log import SchemaLog

    options, paths = context.config.lake, context.paths
    policy = options.schema_policy
    log = SchemaLog(paths.schema_versions, lake_properties(options.lake_history_minutes))
    tables = KnownTables(log)
    pauses = Pauses(log, tables, catalogue, policy)
    steps = SchemaSteps(
        context.plan, lambda table: None if (lake := DeltaTable.open(paths.lake(table))) is None else lake.schema
    )
    decisions = SchemaDecisions(steps, policy, _refusing(context, source))
    versions = SchemaVersions(log, tables, pauses, steps, decisions, reads_new_tables=context.lake_mode.first)
    unsent = UnsentChanges(paths, context.scope, context.renewal_for(source))
    rereads = Rereads(lambda numbers, listen: reread(context, numbers, spark, unsent, listen))
    compared = CatalogueWatch(catalogue, tables, pauses, decisions, versions)
    return SourceWatch(tables, pauses, versions, compared, rereads, source.wal_lsn)
