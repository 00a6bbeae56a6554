"""Reading tables into the lake, as the verbs that do so share it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cdc_core.assemble.context import RunContext
from cdc_core.engine.reports import SnapshotProgress, SnapshotReport
from cdc_core.engine.shapes import streamed
from cdc_core.engine.snapshot_run import SnapshotRun, SnapshotSettings
from cdc_core.engine.source import Source
from cdc_core.errors import TableError
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.sink.delta.features import FeaturePolicy

OnProgress = Callable[[SnapshotProgress], None]


def take(
    context: RunContext, source: Source, spark: Any, tables: Sequence[TableSchema], on_progress: OnProgress | None
) -> list[SnapshotReport]:
    """Replace the tables' lake content by the source's rows at one point. Raises CdcError."""
    from cdc_core.spark.errors import received

    # Described anew: the publication may have been made or changed since, and it belongs to a table's marks.
    wanted = {table.id for table in tables}
    now = {table.id: streamed(table) for table in source.catalog.tables(wanted.__contains__)}
    tables = context.in_reading_order(source, [now.get(table.id, table) for table in tables])
    with received("reading tables into the lake"):
        return _run(context, source, spark).take(tables, on_progress)


def take_again(context: RunContext, table: TableId, shape: int, spark: Callable[[], Any]) -> SnapshotReport:
    """Read one table into the lake while the stream goes on, under the number of the shape that it brings."""
    from cdc_core.sink.delta.positions import lake_position
    from cdc_core.sink.delta.table import DeltaTable
    from cdc_core.spark.errors import received

    with context.source() as source:
        found = source.catalog.tables(lambda name: name == table)
        if not found:
            raise TableError(f"{table} is gone from the source.", f"Create it again, or leave {table} out.", str(table))
        merged = lake_position(DeltaTable.open(context.paths.lake(table)), context.slot, table).lsn
        with received(f"reading {table} again"):
            run = _run(context, source, spark())
            return run.take_again(streamed(found[0]), None if merged is None else Lsn(merged), shape)


def _run(context: RunContext, source: Source, spark: Any) -> SnapshotRun:
    config = context.config
    settings = SnapshotSettings(
        config.snapshot,
        config.engine.snapshot_rows_per_partition,
        config.engine.snapshot_threads,
        config.sink.changelog_reads,
        config.sink.lake_history_minutes,
        FeaturePolicy(config.sink.lake_features, config.sink.merge_rewrite_max_bytes),
    )
    return SnapshotRun(source, spark, context.paths, context.plan, settings)
