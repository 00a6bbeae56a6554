"""Finds, for an LSN or a time, the recorded round to read, and a version of each table that can still be read."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cdc_core.errors import LakeError
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from cdc_core.sink.delta.paths import LakePaths
from cdc_core.sink.delta.positions import lake_position
from cdc_core.sink.delta.rounds import RecordedTable, Round, RoundHead, RoundLog, TableState
from cdc_core.sink.delta.table import DeltaTable

_THREADS = 8


@dataclass(frozen=True, slots=True)
class ReadableVersion:
    """One table of a cut. ``version`` is None if it does not show the source at the cut's LSN, or was removed.

    ``is_gone``: the version existed, and its files or log entries have been removed since.
    """

    table: TableId
    state: TableState
    version: int | None
    path: str
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """One consistent cut: at these versions all tables show the source at ``lsn``.

    ``committed_at`` is the source's commit time of the last transaction in it, if known.
    """

    lsn: Lsn
    committed_at: datetime | None
    recorded_at: datetime
    tables: tuple[ReadableVersion, ...]


def find_cut(
    paths: LakePaths, slot: str, history_minutes: int, at: Lsn | datetime | None, wanted: Sequence[TableId] = ()
) -> Cut:
    """Return the newest round at or before ``at`` (None: the newest of all), with all tables or those ``wanted``.

    If maintenance has replaced a version since, and nothing else was committed to the table, the new version is
    returned. Raises LakeError if no round was recorded, ``at`` is before the first one that is kept or after the
    newest, or a wanted table is in no round, does not show the source at that LSN, or its version was removed.
    """
    log = RoundLog(paths.rounds, history_minutes)
    heads = log.heads() if log.refresh() else []
    if not heads:
        raise LakeError("No round has been recorded in this lake.", "Run wal2lake run; each round is recorded.")
    found = log.round(_chosen(heads, at).number)
    assert found is not None
    chosen = [one for one in found.tables if not wanted or one.table in wanted]
    with ThreadPoolExecutor(_THREADS) as pool:
        tables = tuple(pool.map(lambda one: _readable(paths, slot, one), chosen))
    cut = Cut(found.head.lsn, found.head.committed_at, found.head.recorded_at, tables)
    _require(cut, found, wanted)
    return cut


def renew_newest(paths: LakePaths, slot: str, history_minutes: int) -> bool:
    """Record the newest round again if maintenance has replaced versions in it; returns whether that was needed."""
    log = RoundLog(paths.rounds, history_minutes)
    newest = log.newest() if log.refresh() else None
    if newest is None:
        return False
    tables = [_renewed(paths, slot, one) for one in newest.tables]
    return tables != list(newest.tables) and log.append(newest.head.lsn, newest.head.committed_at, tables)


def _renewed(paths: LakePaths, slot: str, one: RecordedTable) -> RecordedTable:
    table = None if one.version is None else DeltaTable.open(paths.lake(one.table))
    shown = lake_position(table, slot, one.table)
    if table is None or (shown.token, shown.lsn) != (one.snapshot, one.merged_lsn):
        return one
    return replace(one, version=table.version)


def _chosen(heads: Sequence[RoundHead], at: Lsn | datetime | None) -> RoundHead:
    if at is None:
        return heads[-1]
    first, last = heads[0], heads[-1]
    if isinstance(at, Lsn):
        known = [(head.lsn, head) for head in heads if head.lsn <= at]
        bounds, is_past = (str(first.lsn), str(last.lsn)), at > last.lsn
    else:
        timed = [head for head in heads if head.committed_at is not None]
        known = [(head.lsn, head) for head in timed if head.committed_at is not None and head.committed_at <= at]
        bounds = _times(timed)
        newest = timed[-1].committed_at if timed else None
        is_past = newest is not None and at > newest
    name = at.astimezone(UTC).isoformat() if isinstance(at, datetime) else str(at)
    if is_past:
        raise LakeError(
            f"{name} is after the newest round, which is at {bounds[1]}.",
            "Omit --at for the newest round, or let wal2lake run reach that position.",
        )
    if not known:
        raise LakeError(
            f"{name} is before the oldest round that is kept, which is at {bounds[0]}.",
            "wal2lake.lake.history.minutes sets how long rounds are kept.",
        )
    return known[-1][1]


def _times(heads: Sequence[RoundHead]) -> tuple[str, str]:
    times = [head.committed_at.isoformat() for head in heads if head.committed_at is not None]
    return (times[0], times[-1]) if times else ("an unknown time", "an unknown time")


def _readable(paths: LakePaths, slot: str, one: RecordedTable) -> ReadableVersion:
    path = paths.lake(one.table)
    if one.version is None:
        return ReadableVersion(one.table, one.state, None, path)
    if _is_whole(DeltaTable.open_version(path, one.version)):
        return ReadableVersion(one.table, one.state, one.version, path)
    newest = DeltaTable.open(path)
    shown = lake_position(newest, slot, one.table)
    if newest is not None and (shown.token, shown.lsn) == (one.snapshot, one.merged_lsn):
        return ReadableVersion(one.table, one.state, newest.version, path)
    return ReadableVersion(one.table, one.state, None, path, is_gone=True)


def _is_whole(table: DeltaTable | None) -> bool:
    """Whether every data file of the version exists."""
    return table is not None and not table.missing_files()


def _require(cut: Cut, found: Round, wanted: Sequence[TableId]) -> None:
    known = {one.table for one in found.tables}
    for name in wanted:
        if name not in known:
            raise LakeError(
                f"{name} is not in the round at {cut.lsn}.",
                "Check the name; the table was captured later, or is not captured.",
            )
    for one in cut.tables:
        if one.is_gone and (wanted or all(each.version is None for each in cut.tables)):
            raise LakeError(
                f"The version of {one.table} at {cut.lsn} can no longer be read: its files were removed.",
                "Use a later LSN; wal2lake.lake.history.minutes sets how long versions are kept.",
            )
        if wanted and one.version is None:
            raise LakeError(
                f"{one.table} has no version at {cut.lsn}: its state in that round is {one.state.value}.",
                "Use another LSN, or see wal2lake status.",
            )
