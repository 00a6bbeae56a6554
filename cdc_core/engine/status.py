"""Status of each table, read from the source and from the commits of the Delta tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from cdc_core.connector_threads import ConnectorThreadPool
from cdc_core.engine.reports import OwnTableStatus, Paused, TableStatus
from cdc_core.errors import CdcError, SourceError
from cdc_core.lake import (
    LakePaths,
    LakeTable,
    ProgressLog,
    SchemaLog,
    SnapshotLog,
    StagedRows,
    StreamTable,
    StreamTables,
    TableHistory,
    TablePosition,
    TableVersions,
    epoch_of,
)
from cdc_core.lsn import Lsn
from cdc_core.postgres import PostgresOptions, connect, own_rows_sql, translated
from cdc_core.schema import PauseCause, TableId, TableSchema
from cdc_core.snapshot import IncrementalProgress, LakeProgress, Request, StagedRange

_THREADS = 8


def source_rows(options: PostgresOptions, tables: Sequence[TableSchema]) -> dict[TableId, int]:
    """Return the current number of rows of each table that the role may read, counted in one snapshot of the source."""
    with connect(options) as connection, connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        counts = {}
        for table in tables:
            inner = own_rows_sql(table, [table.columns[0].name] if table.columns else [])
            try:
                with translated("counting rows"), connection.transaction():
                    row = connection.execute(f"SELECT count(*) FROM ({inner}) AS counted".encode()).fetchone()
            except SourceError:
                continue
            counts[table.id] = int(row[0]) if row else 0
        return counts


def lake_status(
    paths: LakePaths,
    scope: str,
    tables: Sequence[TableSchema] | None,
    rows: Mapping[TableId, int],
    count: bool,
    includes: Callable[[TableId], bool],
) -> tuple[dict[TableId, TableStatus], str]:
    """Return each table's snapshot, changelog and lake positions from the logs alone; with ``count``, also lake rows.

    The second value is why the log of the tables' schema versions could not be read, empty if it could. ``tables`` is
    None if the server could not be queried: all tables that were captured last are included. A paused table that is
    captured (``includes``) is included even if the server no longer lists it as one to capture: it may be UNLOGGED, or
    dropped.
    """
    histories, problem = _histories(paths)
    listed = {table.id for table in tables or ()}
    others = {name: h for name, h in histories.items() if name not in listed and includes(name) and h.versions}
    lost = [h.versions[max(h.versions)].table for h in others.values() if tables is None or h.paused is not None]
    tables = sorted(lost, key=lambda table: table.id) if tables is None else [*tables, *lost]
    taken = _times_of_snapshots(paths, scope)

    def look(table: TableSchema) -> TableStatus:
        try:
            return read(table)
        except (CdcError, OSError) as error:
            history = histories.get(table.id)
            pause = None if history is None else history.paused
            paused = None if pause is None else Paused(pause.reason, pause.remedy, pause.since, 0)
            unknown = (None,) * 5
            return TableStatus(table.id, table.lake_key, *unknown, rows.get(table.id), paused, error=_said(error))

    def read(table: TableSchema) -> TableStatus:
        known = LakeTable(paths, scope, table.id)
        position = known.position(is_complete=True)
        lake, changelog = position.place, position.changelog
        waiting, reasons = known.quarantined(lake)
        history = histories.get(table.id, TableHistory({}))
        return TableStatus(
            table.id,
            table.lake_key,
            None if lake.token is None else Lsn(lake.token),
            None if changelog is None else Lsn(changelog.commit_lsn),
            None if lake.lsn is None else Lsn(lake.lsn),
            position.version,
            known.row_count() if count and position.exists else None,
            rows.get(table.id),
            _paused(history, position),
            waiting,
            reasons=reasons,
            reread=TableVersions.of(history, position.schema_version).reread or "",
            up_to=position.up_to() or taken.get((table.id, lake.merge_token)),
        )

    with ConnectorThreadPool(_THREADS) as pool:
        statuses = [replace(status, path=paths.lake(status.table)) for status in pool.map(look, tables)]
    return {status.table: status for status in statuses}, problem


def own_table_status(paths: LakePaths, scope: str) -> tuple[OwnTableStatus, ...]:
    """Return the tables of the stream's own that have rows, and what each has."""

    def look(table: StreamTable) -> OwnTableStatus | None:
        name = table.id.table
        try:
            last = StreamTables(paths, scope, 0).last_row(table)
            return None if last is None else OwnTableStatus(name, Lsn(last[0]), last[1])
        except (CdcError, OSError) as error:
            return OwnTableStatus(name, error=_said(error))

    return tuple(table_status for table_status in map(look, StreamTable) if table_status is not None)


def incremental_status(paths: LakePaths, scope: str) -> tuple[IncrementalProgress, ...]:
    """Return the incremental snapshots under way, from what is stored: of a run's request, and of jobs' staged ranges.

    Nothing if it cannot be read.
    """
    try:
        state = LakeProgress.from_json(ProgressLog(paths.incremental, 0).read())
        staged = [StagedRange.of(file) for file in StagedRows(paths.staged, {}).look()]
    except (CdcError, OSError, ValueError):
        return ()
    if state.epoch != epoch_of(scope):
        state = LakeProgress()
    request, current = state.request, state.progress.current
    mine = [staged_range for staged_range in staged if request.id and staged_range.name[0] == request.id]
    snapshots = [] if current is None else [_of_request(current.table, request, mine, is_paused=state.progress.paused)]
    snapshots += [IncrementalProgress(collection.table, 0, 0, 0, 0) for collection in state.progress.queue[1:]]
    of_jobs = [staged_range for staged_range in staged if staged_range not in mine and staged_range.name[1]]
    for table in dict.fromkeys(staged_range.table for staged_range in of_jobs):
        ranges = [staged_range for staged_range in of_jobs if staged_range.table == table]
        rows = sum(staged_range.staged.rows for staged_range in ranges)
        snapshots.append(IncrementalProgress(table, rows, len(ranges), 0, len(ranges)))
    return tuple(snapshots)


def _of_request(
    table: TableId, request: Request, staged: Sequence[StagedRange], *, is_paused: bool
) -> IncrementalProgress:
    rows, done = request.rows + sum(staged_range.staged.rows for staged_range in staged), len(request.done)
    seconds = time.time() - request.began if request.began else 0.0
    read, expected = done + len(staged), request.expected
    return IncrementalProgress(table, rows, read, done, request.ranges, seconds, expected, is_paused)


def _histories(paths: LakePaths) -> tuple[dict[TableId, TableHistory], str]:
    """Return the history of each table, or none, and why they cannot be read."""
    try:
        return SchemaLog(paths.schema_versions, {}).read(), ""
    except (CdcError, OSError) as error:
        return {}, _said(error)


def _times_of_snapshots(paths: LakePaths, scope: str) -> dict[tuple[TableId, int], datetime]:
    """Return when each table was read, by its token; nothing if the record of snapshots cannot be read."""
    try:
        return SnapshotLog(paths.snapshots, epoch_of(scope)).times()
    except (CdcError, OSError):
        return {}


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, CdcError) else f"It cannot be read ({type(error).__name__})."


def paused_now(paths: LakePaths, scope: str, table: TableId) -> Paused | None:
    """Return why a table is paused, from only the logs; None if it is not."""
    history = SchemaLog(paths.schema_versions, {}).read().get(table)
    return _paused(history, LakeTable(paths, scope, table).position())


def _paused(history: TableHistory | None, position: TablePosition) -> Paused | None:
    if history is None or history.paused is None:
        return None
    pause = history.paused
    is_by_rules = pause.cause is PauseCause.CHANGES_REFUSED
    return Paused(pause.reason, pause.remedy, pause.since, position.unmerged(), is_by_rules)
