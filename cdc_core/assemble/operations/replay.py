"""Operation ``replay``: resumes a paused table and replays its quarantined changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.prerequisites import chosen_tables
from cdc_core.assemble.quality import table_checks
from cdc_core.assemble.signals.requests import ask_stream, snapshot_of
from cdc_core.assemble.sinks import open_lake
from cdc_core.assemble.table_snapshots import take
from cdc_core.engine import Continuity, LakeSink, RecordedStream, ReplayReport, RoundReport, TableRegistry
from cdc_core.errors import InUseError, TableError
from cdc_core.lake import QuarantineReport, Replay
from cdc_core.lsn import Lsn
from cdc_core.postgres import Source
from cdc_core.schema import TableId, TableSchema, streamed
from cdc_core.snapshot import REPLAY_TABLE, OnProgress


def replay(
    context: RunContext, table: TableId, spark: Any, on_progress: OnProgress | None, again: Replay
) -> ReplayReport:
    """Merge a paused table's changes in order, after re-reading it if necessary. Raises TableError if it cannot resume.

    Its quarantined changes are checked again as configured by ``again`` and merged in their original order.
    """
    context.config.require_carried()
    context.config.require_lake()
    try:
        with context.claimed() as source:
            return _replayed(context, source, table, spark, on_progress, again)
    except InUseError as error:
        return _asked(context, table, again, error)


def _asked(context: RunContext, table: TableId, again: Replay, in_use: InUseError) -> ReplayReport:
    """Have the running stream do it. Raises CdcError."""
    with context.source() as source:
        _chosen(context, context.named_tables(source), table, again)
    data = {"accept": list(again.accept), "accept-all": again.accept_all, "drop": again.drop}
    answer = ask_stream(context, REPLAY_TABLE, {table: data}, in_use)[table]
    return ReplayReport(table, answer["events"], snapshot_of(table, answer), QuarantineReport(**answer["quarantine"]))


def _chosen(context: RunContext, captured: list[TableSchema], table: TableId, again: Replay) -> list[TableSchema]:
    chosen = chosen_tables(captured, [table])
    _require_read(context, chosen[0])
    _require_rules(context, chosen[0], again.accept)
    return chosen


def _replayed(
    context: RunContext, source: Source, table: TableId, spark: Any, on_progress: OnProgress | None, again: Replay
) -> ReplayReport:
    captured, _ = context.checked(source)
    chosen = _chosen(context, captured, table, again)
    # Not before it is known that there is something to do: Spark takes seconds to start.
    session = context.session(spark)
    RecordedStream(context.lake, source, Continuity.of(context.lake, captured)).join()
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
        rounds = list(_merged(sink, reached, {table: Replay(before_drop=True) if again.drop else again}))
        if again.drop and table not in rounds[-1].failed:
            rounds.append(_round(sink, reached, {table: again}))
    failed = rounds[-1].failed.get(table)
    if failed is not None:
        raise TableError(failed, f"Correct the cause and run wal2lake replay again with {table}.", str(table))
    events = sum(merge.events for one in rounds for merge in one.merges if merge.table == table)
    found = [one.replays[table] for one in rounds if table in one.replays]
    quarantine = QuarantineReport(
        found[-1].waiting if found else 0, sum(one.replayed for one in found), sum(one.dropped for one in found)
    )
    return ReplayReport(table, events, snapshot, quarantine)


def _round(sink: LakeSink, reached: Lsn, replays: Mapping[TableId, Replay]) -> RoundReport:
    sink.append(None, reached, replays)
    return sink.merge()


def _merged(sink: LakeSink, reached: Lsn, replays: Mapping[TableId, Replay]) -> Iterator[RoundReport]:
    """Merge in one round, and in more where it leaves a rest: a long backlog is merged in parts."""
    done = _round(sink, reached, replays)
    yield done
    while done.has_rest and sink.has_backlog(reached):
        done = _round(sink, reached, replays)
        yield done


def _require_read(context: RunContext, table: TableSchema) -> None:
    """Raise TableError for a table that was never read, unless it is paused or to be read: it has nothing to replay."""
    from cdc_core.lake import SchemaLog

    if context.lake.known([table]):
        return
    history = SchemaLog(context.lake.paths.schema_versions, {}).read().get(table.id)
    if history is None or (history.paused is None and history.reread is None):
        raise TableError(
            f"{table.id} has not been read into the lake yet: there is nothing to replay.",
            f"Run wal2lake snapshot with {table.id}, or wal2lake run, which reads new tables.",
            str(table.id),
        )


def _require_rules(context: RunContext, table: TableSchema, accepted: Sequence[str]) -> None:
    """Raise TableError if a rule that is to be accepted does not exist for the table."""
    if not accepted:
        return
    known = table_checks(context, [table]).rule_names(streamed(table))
    plain = {name.removeprefix("user:") for name in known}
    unknown = [name for name in accepted if name not in plain.union(known)]
    if unknown:
        raise TableError(
            f"{table.id} has no rule {', '.join(unknown)}.",
            f"Its rules are {', '.join(sorted(plain))}.",
            str(table.id),
        )
