"""Finds, for an LSN or a time, the recorded round to read, and a version of each table that can still be read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import get_close_matches

from cdc_core.connector_threads import ConnectorThreadPool
from cdc_core.errors import LakeError, UnreadableError
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import epoch_of, scope_of, slot_of
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import lake_position
from cdc_core.lake.stores.rounds import RecordedTable, Round, RoundHead, RoundLog, TableState
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId

_THREADS = 8


@dataclass(frozen=True, slots=True)
class ReadableVersion:
    """One table of a cut. ``version`` is None if it does not show the source at the cut's LSN, or was removed.

    ``is_gone``: the version existed; since then its files or log entries were removed, or the table was created again.
    """

    table: TableId
    state: TableState
    version: int | None
    path: str
    is_gone: bool = False

    @property
    def state_text(self) -> str:
        """The state's value, "gone" for a version that existed."""
        return "gone" if self.is_gone else self.state.value


@dataclass(frozen=True, slots=True)
class Cut:
    """One consistent cut: at these versions all tables show the source at ``lsn``.

    ``committed_at`` is the source's commit time of the last transaction in it, if known. ``lsn`` is of the stream's
    ``epoch``.
    """

    lsn: Lsn
    committed_at: datetime | None
    recorded_at: datetime
    tables: tuple[ReadableVersion, ...]
    epoch: int = 0


def find_cut(paths: LakePaths, scope: str, at: Lsn | datetime | None, names: Sequence[TableId] = ()) -> Cut:
    """Return the newest round at or before ``at`` (None: the newest of all), with all tables or those of ``names``.

    It is the newest in which none of these tables is behind, if such a round is kept: a table that is merged less often
    than others is behind in most of them. An LSN is one of the scope's epoch (``epochs``); rounds of earlier ones are
    found by time. A version is returned only if the table is the recorded one, with the recorded positions. If
    maintenance has replaced it since, and nothing else was committed to the table, the new version is returned. Raises
    LakeError if no round was recorded, ``at`` is before the first one that is kept or after the newest, or a wanted
    table is in no round, does not show the source at that LSN, or its version was removed.
    """
    log = RoundLog(paths.rounds, 0)
    heads = log.heads() if log.refresh() else []
    if not heads:
        raise LakeError("No round has been recorded in this lake.", "Run wal2lake run; each round is recorded.")
    if isinstance(at, Lsn):
        heads = [head for head in heads if head.epoch == epoch_of(scope)]
        if not heads:
            raise LakeError(
                "No round has been recorded since the lake was read from the present server.",
                "Run wal2lake run, or give a time for a round of the former one.",
            )
    recorded = log.round(_chosen(heads, at, log.behind(names)).number)
    assert recorded is not None
    of_round = scope_of(slot_of(scope), recorded.head.epoch)
    chosen = [entry for entry in recorded.tables if not names or entry.table in names]
    with ConnectorThreadPool(_THREADS) as pool:
        tables = tuple(pool.map(lambda entry: _readable(paths, of_round, entry), chosen))
    cut = Cut(recorded.head.lsn, recorded.head.committed_at, recorded.head.recorded_at, tables, recorded.head.epoch)
    _require(cut, recorded, names)
    return cut


def renew_newest(paths: LakePaths, scope: str, history_minutes: int) -> bool:
    """Record the newest round again if maintenance has replaced versions in it; returns whether that was needed."""
    log = RoundLog(paths.rounds, history_minutes, epoch_of(scope))
    newest = log.newest() if log.refresh() else None
    if newest is None or newest.head.epoch != epoch_of(scope):
        return False
    tables = [_renewed(paths, scope, entry) for entry in newest.tables]
    return tables != list(newest.tables) and log.append(newest.head.lsn, newest.head.committed_at, tables)


def _renewed(paths: LakePaths, scope: str, entry: RecordedTable) -> RecordedTable:
    try:
        table = None if entry.version is None else DeltaTable.open(paths.lake(entry.table))
    except UnreadableError:
        return entry
    if table is None or not _is_recorded(table, scope, entry):
        return entry
    return replace(entry, version=table.version)


def _is_recorded(table: DeltaTable, scope: str, entry: RecordedTable) -> bool:
    """Whether an opened version has the content of a recorded one: the same table, at the same positions."""
    shown = lake_position(table, scope, entry.table)
    is_same = entry.identity is None or table.identity == entry.identity
    return is_same and (shown.token, shown.lsn) == (entry.snapshot, entry.merged_lsn)


def _chosen(heads: Sequence[RoundHead], at: Lsn | datetime | None, behind: Collection[int]) -> RoundHead:
    """Return the newest round at or before ``at`` that is not among those ``behind``; if all are, the newest."""
    known = _up_to(heads, at)
    of_epoch = [head for head in known if head.epoch == known[-1].epoch]
    return next((head for head in reversed(of_epoch) if head.number not in behind), known[-1])


def _up_to(heads: Sequence[RoundHead], at: Lsn | datetime | None) -> list[RoundHead]:
    """Return the rounds at or before ``at``, oldest first. Raises LakeError if there are none, or it is after all."""
    if at is None:
        return list(heads)
    first, last = heads[0], heads[-1]
    if isinstance(at, Lsn):
        known = [head for head in heads if head.lsn <= at]
        bounds, is_past = (str(first.lsn), str(last.lsn)), at > last.lsn
    else:
        timed = [head for head in heads if head.committed_at is not None]
        known = [head for head in timed if head.committed_at is not None and head.committed_at <= at]
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
    return known


def _times(heads: Sequence[RoundHead]) -> tuple[str, str]:
    times = [head.committed_at.isoformat() for head in heads if head.committed_at is not None]
    return (times[0], times[-1]) if times else ("an unknown time", "an unknown time")


def _readable(paths: LakePaths, scope: str, entry: RecordedTable) -> ReadableVersion:
    path = paths.lake(entry.table)
    if entry.version is None:
        return ReadableVersion(entry.table, entry.state, None, path)
    table = DeltaTable.open_version(path, entry.version)
    if table is not None and _is_recorded(table, scope, entry) and not table.missing_files():
        return ReadableVersion(entry.table, entry.state, entry.version, path)
    try:
        newest = DeltaTable.open(path)
    except UnreadableError:
        newest = None
    if newest is not None and _is_recorded(newest, scope, entry):
        return ReadableVersion(entry.table, entry.state, newest.version, path)
    return ReadableVersion(entry.table, entry.state, None, path, is_gone=True)


def _require(cut: Cut, recorded: Round, names: Sequence[TableId]) -> None:
    known = {entry.table for entry in recorded.tables}
    for name in names:
        if name not in known:
            near = get_close_matches(str(name), [str(table) for table in known], 1)
            raise LakeError(
                f"{name} is not in the round at {cut.lsn}.",
                f"Did you mean {near[0]}?" if near else "The table was captured later, or is not captured.",
            )
    for entry in cut.tables:
        if entry.is_gone and (names or all(other.version is None for other in cut.tables)):
            raise LakeError(
                f"The version of {entry.table} at {cut.lsn} can no longer be read: its files were removed, or "
                "the table was created again.",
                "Use a later LSN; wal2lake.lake.history.minutes sets how long versions are kept.",
            )
        if names and entry.version is None:
            raise LakeError(
                f"{entry.table} has no version at {cut.lsn}: its state in that round is {entry.state.value}.",
                "Use another LSN, or see wal2lake status.",
            )
