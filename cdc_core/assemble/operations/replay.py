"""Operation ``replay``: resumes a paused table and replays its quarantined changes."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.prerequisites import chosen_tables
from cdc_core.assemble.sinks import open_lake
from cdc_core.assemble.start.continuity import Continuity
from cdc_core.assemble.table_snapshots import OnProgress, take
from cdc_core.engine.reading.tables import TableRegistry
from cdc_core.engine.reports import QuarantineReport, ReplayReport
from cdc_core.engine.slice.order import Replay
from cdc_core.errors import TableError
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from cdc_core.schema.unseen import streamed


def replay(
    context: RunContext, table: TableId, spark: Any, on_progress: OnProgress | None, again: Replay
) -> ReplayReport:
    """Merge a paused table's changes in order, after re-reading it if necessary. Raises TableError if it cannot resume.

    Its quarantined changes are checked again as configured by ``again`` and merged in their original order.
    """
    context.config.require_carried()
    context.config.require_lake()
    session = context.session(spark)
    with context.claimed() as source:
        captured, _ = context.checked(source)
        chosen = chosen_tables(captured, [table])
        Continuity.of(context, captured).join(source)
        registry = TableRegistry(source.describing(), source.includes(), [streamed(each) for each in captured])
        # One table is merged up to the end of its own changelog, which the other tables need not have reached.
        with (
            context.run_folder() as folder,
            closing(open_lake(context, source, registry, session, folder, records_rounds=False)) as sink,
        ):
            positions = sink.positions(each.id for each in captured)
            reached = Lsn(positions[table].commit_lsn) if table in positions else Lsn(0)
            snapshot = None
            if not sink.resume(table, reached):
                snapshot = take(context, source, session(), chosen, on_progress)[0]
                sink.backfill.note_read(table)
            if again.drop:  # other changes are merged first: only those that wait after that are dropped
                sink.apply(None, reached, lambda: None)
            merged = sink.apply(None, reached, lambda: None, {table: again})
        failed = merged.failed.get(table)
        if failed is not None:
            raise TableError(failed, f"Correct the cause and run wal2lake replay again with {table}.", str(table))
        events = sum(merge.events for merge in merged.merges if merge.table == table)
        return ReplayReport(table, events, snapshot, merged.replays.get(table, QuarantineReport()))
