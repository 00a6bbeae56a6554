"""Where the stream's batches go, opened: the lake, or nowhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.taking import take_again
from cdc_core.engine.checks import TableChecks
from cdc_core.engine.describe_now import DescribeNow
from cdc_core.engine.lake import LakeSink, SourceWatch
from cdc_core.engine.noop import NoopSink
from cdc_core.engine.reread import Rereads
from cdc_core.engine.shapes import Shapes
from cdc_core.engine.source import Source
from cdc_core.engine.stream import Sink
from cdc_core.engine.tables import TableBook
from cdc_core.postgres.connect import connection_string
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.snapshot.modes import answers


def open_sink(
    context: RunContext, source: Source, book: TableBook, spark: Callable[[], Any], tables: list[TableSchema]
) -> tuple[Sink, dict[TableId, Any]]:
    """The sink that ``wal2lake.sinks`` names, and the position that each table's changelog has reached."""
    if "noop" in context.config.engine.sinks:
        return NoopSink(spark, context.plan), {}
    sink = open_lake(context, source, book, spark)
    return sink, sink.positions(table.id for table in tables)


def open_lake(context: RunContext, source: Source, book: TableBook, spark: Callable[[], Any]) -> LakeSink:
    """The lake with everything that watches over it; to be closed."""
    from cdc_core.sink.delta.shape import lake_properties
    from cdc_core.sink.delta.shape_log import ShapeLog
    from cdc_core.sink.delta.table import DeltaTable

    config, plan, paths = context.config, context.plan, context.paths
    checks = TableChecks(config.quality, plan, DescribeNow(connection_string(config.postgres)))
    shapes = Shapes(
        ShapeLog(paths.shapes, lake_properties(config.sink.lake_history_minutes)),
        source.describing(),
        plan,
        config.sink.schema_policy,
        lambda table: None if (lake := DeltaTable.open(paths.lake(table))) is None else lake.schema,
        reads_new_tables=answers(config.snapshot).first,
    )
    rereads = Rereads(lambda table, shape: take_again(context, table, shape, spark))
    watch = SourceWatch(shapes, rereads, source.wal_lsn)
    return LakeSink(
        spark, paths, context.slot, plan, book, checks, watch, config.sink, config.engine, context.spool_folder
    )
