"""The verb that drains the slot into the sink."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.sinks import open_sink
from cdc_core.engine.read import BatchBounds, SlotReader
from cdc_core.engine.reports import StreamReport, Until
from cdc_core.engine.shapes import streamed
from cdc_core.engine.source import Source
from cdc_core.engine.spool import Spool
from cdc_core.engine.stream import Hooks, StreamRun
from cdc_core.engine.tables import TableBook
from cdc_core.errors import SourceError
from cdc_core.lsn import Lsn
from cdc_core.postgres.stream import ReplicationStream
from cdc_core.schema.table import TableSchema


def stream(context: RunContext, until: Until, spark: Any, hooks: Hooks) -> StreamReport:
    """Drain the slot into the sink until a bound of ``until`` is met; what was read by then is merged."""
    context.config.require_carried()
    # Spark takes seconds to start: it does so while the server is asked and the first changes are read.
    session = context.session(spark)
    with context.claimed() as source:
        tables, found = context.checked(source)
        if not found.exists or found.confirmed_lsn is None:
            raise SourceError(
                f"There is no slot {context.slot}: nothing was captured so far.", "Take the first snapshot."
            )
        source.require_publication()
        # The publication stays as the last snapshot made it: a table that joined it here would have a gap.
        report = _drain(context, source, tables, found.confirmed_lsn, until, session, hooks)
        if report.stopped_by != "time":
            source.drop_on_stop()
        return report


def _drain(
    context: RunContext,
    source: Source,
    tables: list[TableSchema],
    start: Lsn,
    until: Until,
    spark: Callable[[], Any],
    hooks: Hooks,
) -> StreamReport:
    engine = context.config.engine
    book = TableBook(source.describing(), source.includes(), [streamed(table) for table in tables])
    sink, positions = open_sink(context, source, book, spark, tables)
    bounds = BatchBounds(engine.batch_max_rows, engine.batch_max_bytes, engine.spool_max_bytes)
    with (
        closing(sink),
        closing(ReplicationStream(context.config.postgres)) as replication,
        closing(Spool(context.spool_folder)) as spool,
        SlotReader(replication, book.describe, positions, spool, context.plan, bounds) as reader,
    ):
        run = StreamRun(reader, sink, replication.confirm, engine.freshness_seconds / 2, start, hooks)
        return run.run(until)
