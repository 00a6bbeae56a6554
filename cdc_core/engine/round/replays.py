"""Replaying one table: its changes are merged up to the end of its changelog, after a re-read if necessary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from cdc_core.engine.connector_lake import ConnectorLake
from cdc_core.engine.reports import ReplayReport, RoundReport
from cdc_core.engine.round.lake_sink import LakeSink
from cdc_core.errors import TableError
from cdc_core.lake import QuarantineReport, Replay
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId, TableSchema, streamed
from cdc_core.snapshot import SnapshotReport


def require_replayable(lake: ConnectorLake, table: TableSchema, accepted: Sequence[str]) -> None:
    """Raise TableError if the table was never read, or if a rule of ``accepted`` does not exist for it.

    A table that is paused or to be read has something to replay although it was not read.
    """
    if not lake.known([table]):
        history = lake.schema_log.read().get(table.id)
        if history is None or (history.paused is None and history.reread is None):
            raise TableError(
                f"{table.id} has not been read into the lake yet: there is nothing to replay.",
                f"Run wal2lake snapshot with {table.id}, or wal2lake run, which reads new tables.",
                str(table.id),
            )
    if not accepted:
        return
    known = lake.checks([table]).rule_names(streamed(table))
    plain = {name.removeprefix("user:") for name in known}
    unknown = [name for name in accepted if name not in plain.union(known)]
    if unknown:
        raise TableError(
            f"{table.id} has no rule {', '.join(unknown)}.",
            f"Its rules are {', '.join(sorted(plain))}.",
            str(table.id),
        )


def replayed(
    sink: LakeSink, table: TableId, reached: Lsn, again: Replay, read: Callable[[], SnapshotReport]
) -> ReplayReport:
    """Merge the table up to ``reached``, the end of its changelog; ``read`` reads it if it cannot be resumed.

    Its quarantined changes are checked again as ``again`` says. Raises TableError if the table stays paused.
    """
    snapshot = None
    if not sink.resume(table, reached):
        snapshot = read()
        sink.backfill.note_read(table)
    rounds = list(_merged(sink, reached, {table: Replay(before_drop=True) if again.drop else again}))
    if again.drop and table not in rounds[-1].failed:
        rounds.append(_round(sink, reached, {table: again}))
    failed = rounds[-1].failed.get(table)
    if failed is not None:
        raise TableError(failed, f"Correct the cause and run wal2lake replay again with {table}.", str(table))
    events = sum(merge.events for done in rounds for merge in done.merges if merge.table == table)
    parts = [done.replays[table] for done in rounds if table in done.replays]
    quarantine = QuarantineReport(
        parts[-1].waiting if parts else 0, sum(part.replayed for part in parts), sum(part.dropped for part in parts)
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
