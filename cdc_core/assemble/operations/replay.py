"""Operation ``replay``: resumes a paused table and replays its quarantined changes."""

from __future__ import annotations

from contextlib import closing

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.notifications import observed
from cdc_core.assemble.signals.own_file import own_signals
from cdc_core.assemble.sinks import open_lake
from cdc_core.engine import (
    Continuity,
    RecordedStream,
    ReplayReport,
    TableRegistry,
    ask_stream,
    replayed,
    require_replayable,
    snapshot_of,
)
from cdc_core.errors import InUseError
from cdc_core.lake import QuarantineReport, Replay
from cdc_core.lsn import Lsn
from cdc_core.postgres import Source
from cdc_core.schema import TableId, TableSchema, streamed
from cdc_core.selection import chosen_tables
from cdc_core.snapshot import REPLAY_TABLE, OnProgress
from cdc_core.spark import GivenSession


def replay(
    context: RunContext, table: TableId, spark: GivenSession, on_progress: OnProgress | None, again: Replay
) -> ReplayReport:
    """Merge a paused table's changes in order, after re-reading it if necessary. Raises TableError if it cannot resume.

    Its quarantined changes are checked again as configured by ``again`` and merged in their original order. A stream
    that is running is asked to do it.
    """
    context.config.require_carried()
    try:
        with context.claimed() as source:
            return _replayed(context, source, table, spark, on_progress, again)
    except InUseError as error:
        return _asked(context, table, again, error)


def _asked(context: RunContext, table: TableId, again: Replay, in_use: InUseError) -> ReplayReport:
    with context.source() as source:
        _chosen(context, context.named_tables(source), table, again)
    data = {"accept": list(again.accept), "accept-all": again.accept_all, "drop": again.drop}
    answers = ask_stream(own_signals(context.config), context.is_running, REPLAY_TABLE, {table: data}, in_use)
    answer = answers[table]
    return ReplayReport(table, answer["events"], snapshot_of(table, answer), QuarantineReport(**answer["quarantine"]))


def _chosen(context: RunContext, captured: list[TableSchema], table: TableId, again: Replay) -> list[TableSchema]:
    chosen = chosen_tables(captured, [table])
    require_replayable(context.lake, chosen[0], again.accept)
    return chosen


def _replayed(
    context: RunContext,
    source: Source,
    table: TableId,
    spark: GivenSession,
    on_progress: OnProgress | None,
    again: Replay,
) -> ReplayReport:
    captured, _ = context.checked(source)
    chosen = _chosen(context, captured, table, again)
    # Not before it is known that there is something to do: Spark takes seconds to start.
    session = context.session(spark)
    RecordedStream(context.lake, source, Continuity.of(context.lake, captured)).join()
    registry = TableRegistry(source.describing(), source.includes(), [streamed(schema) for schema in captured])
    # One table is merged up to the end of its own changelog, which the other tables need not have reached.
    with (
        context.run_folder() as folder,
        closing(open_lake(context, source, registry, session, folder, records_rounds=False)) as sink,
    ):
        positions = sink.positions(schema.id for schema in captured)
        reached = Lsn(positions[table].commit_lsn) if table in positions else Lsn(0)
        observers = observed(context, on_progress, None)
        return replayed(
            sink, table, reached, again, lambda: context.snapshots.take(source, session(), chosen, observers)[0]
        )
