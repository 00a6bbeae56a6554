"""Snapshots of tables into the lake, shared by several operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.metrics import meter
from cdc_core.assemble.notifications import OnNotification, open_notifier
from cdc_core.errors import TableError
from cdc_core.lsn import Lsn
from cdc_core.postgres.source import Source
from cdc_core.schema.changes import DroppedColumns
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.schema.unseen import streamed
from cdc_core.sink.delta.features import FeaturePolicy
from cdc_core.snapshot.notifications import notify_of_snapshot
from cdc_core.snapshot.reports import SnapshotProgress, SnapshotReport
from cdc_core.snapshot.run import SnapshotRun, SnapshotSettings

OnProgress = Callable[[SnapshotProgress], None]


def take(
    context: RunContext,
    source: Source,
    spark: Any,
    tables: Sequence[TableSchema],
    on_progress: OnProgress | None,
    on_notification: OnNotification | None = None,
) -> list[SnapshotReport]:
    """Replace the content of lake tables by the source's rows at one consistent point. Raises CdcError."""
    from cdc_core.spark.errors import received

    # Described again: the publication may have been created or changed since, and is part of a table's fingerprint.
    wanted = {table.id for table in tables}
    now = {table.id: streamed(table) for table in source.catalog.tables(wanted.__contains__)}
    tables = context.in_reading_order(source, [now.get(table.id, table) for table in tables])
    metered = meter(context)
    with (
        open_notifier(context, metered.notification(on_notification)) as notifier,
        notify_of_snapshot(notifier, [table.id for table in tables], metered.progress(on_progress)) as listen,
        received("reading tables into the lake"),
    ):
        return _run(context, source, spark).take(tables, listen)


def reread(context: RunContext, table: TableId, shape: int, spark: Callable[[], Any]) -> SnapshotReport:
    """Re-read one table into the lake while streaming continues; ``shape`` is the number of the table's new shape."""
    from cdc_core.sink.delta.positions import lake_position
    from cdc_core.sink.delta.table import DeltaTable
    from cdc_core.spark.errors import received

    with context.source() as source:
        found = source.catalog.tables(lambda name: name == table)
        if not found:
            raise TableError(
                f"{table} no longer exists in the source.", f"Create it again, or leave {table} out.", str(table)
            )
        merged = lake_position(DeltaTable.open(context.paths.lake(table)), context.slot, table).lsn
        with received(f"re-reading {table}"):
            run = _run(context, source, spark())
            return run.reread(streamed(found[0]), None if merged is None else Lsn(merged), shape)


def blocking_snapshot(
    context: RunContext, numbers: Mapping[TableId, int], spark: Callable[[], Any]
) -> dict[TableId, SnapshotReport]:
    """Read tables into the lake at one consistent point while streaming is paused; altered tables are left out.

    ``numbers`` are the numbers of the tables' new shapes. Raises TableError if a table no longer exists.
    """
    from cdc_core.sink.delta.positions import lake_position
    from cdc_core.sink.delta.table import DeltaTable
    from cdc_core.spark.errors import received

    with context.source() as source:
        tables = [streamed(table) for table in source.catalog.tables(numbers.__contains__)]
        if len(tables) < len(numbers):
            gone = ", ".join(str(table) for table in numbers if all(table != found.id for found in tables))
            raise TableError(
                f"{gone} no longer exists in the source.", "Request the snapshot of the other tables again.", gone
            )
        merged = {
            table.id: lake_position(DeltaTable.open(context.paths.lake(table.id)), context.slot, table.id).lsn
            for table in tables
        }
        floors = {table: None if lsn is None else Lsn(lsn) for table, lsn in merged.items()}
        with received("taking a blocking snapshot"):
            return _run(context, source, spark()).take_together(tables, floors, numbers)


def _run(context: RunContext, source: Source, spark: Any) -> SnapshotRun:
    config = context.config
    settings = SnapshotSettings(
        config.snapshot,
        config.engine.snapshot_rows_per_partition,
        config.engine.snapshot_threads,
        config.sink.changelog_reads,
        config.sink.lake_history_minutes,
        FeaturePolicy.of(config.sink),
        config.sink.delete_modes,
        config.sink.lake_dropped_columns is DroppedColumns.KEEP,
        config.sink.lake_catalog_database,
    )
    return SnapshotRun(source, spark, context.paths, context.plan, settings)
