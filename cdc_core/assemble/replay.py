"""The verb that lets a paused table go on."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from cdc_core.assemble.beforehand import chosen_tables
from cdc_core.assemble.context import RunContext
from cdc_core.assemble.sinks import open_lake
from cdc_core.assemble.taking import OnProgress, take
from cdc_core.engine.reports import ReplayReport
from cdc_core.engine.shapes import streamed
from cdc_core.engine.tables import TableBook
from cdc_core.errors import TableError
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId


def replay(context: RunContext, table: TableId, spark: Any, on_progress: OnProgress | None) -> ReplayReport:
    """Merge a paused table's changes, in order, after reading it again where needed; TableError where it cannot."""
    context.config.require_carried()
    context.config.require_lake()
    session = context.session(spark)
    with context.claimed() as source:
        captured, _ = context.checked(source)
        chosen = chosen_tables(captured, [table])
        book = TableBook(source.describing(), source.includes(), [streamed(each) for each in captured])
        sink = open_lake(context, source, book, session)
        with closing(sink):
            positions = sink.positions(each.id for each in captured)
            reached = Lsn(positions[table].commit_lsn) if table in positions else Lsn(0)
            snapshot = None
            if not sink.resume(table, reached):
                snapshot = take(context, source, session(), chosen, on_progress)[0]
                sink.reopen(table)
            merged = sink.apply(None, reached, lambda: None)
        failed = merged.failed.get(table)
        if failed is not None:
            raise TableError(failed, f"Mend the cause and run wal2lake replay again with {table}.", str(table))
        events = sum(merge.events for merge in merged.merges if merge.table == table)
        return ReplayReport(table, events, snapshot)
