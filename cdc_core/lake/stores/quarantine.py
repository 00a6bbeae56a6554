"""Change rows that are not in the lake because a quality rule refused them or an earlier one was, and their state.

A Delta table with one row per change row, identified by its position and the snapshot in force. The change row itself
is in the changelog, from which it is read when it is replayed; ``row`` is its text for users.

Rows that were read from the source (op r) have an index below -1, which no other row of the table's changelog has
(``lake/write/refused_reads``). Those of a snapshot are written before it is in force, under its token: they wait from
the commit that puts it in force, whatever LSN is merged since.

A row is written, or its state changed, before the corresponding commit of the lake. So each contains the LSN up to
which that commit merges the lake (``__round``) and its previous state: until the lake has reached that LSN, the new
state does not apply. A crash between the two commits thus leaves rows that the next round overwrites, and the tables
cannot disagree. A new snapshot starts over: rows written under an earlier token no longer wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools, Ints
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.log_text import unreadable_log
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.compaction import compact
from cdc_core.lake.positions import LakePosition
from cdc_core.lake.rows.images import column

QUARANTINED_AT = "__quarantined_at"
WAITS_FOR_EARLIER = "waits_for_earlier_change"
"""As a reason: the row itself passes, but depends on an earlier one that is not in the lake."""

# Every commit contains it, so that of two writers with the same rows the later one reads the table again.
_APP = "wal2lake:quarantine"

_POSITION = ["__commit_lsn", "__tx_index"]
_AT = pa.timestamp("us", tz="UTC")
_STATE = pa.schema(
    [
        ("status", pa.string()),
        ("settled_at", _AT),
        ("__token", pa.int64()),
        ("__round", pa.int64()),
        ("__waits", pa.int8()),
        ("__waited", pa.int8()),
    ]
)


class QuarantineStatus(StrEnum):
    """State of a row: it waits, or it was superseded by a later change, applied by a replay, or dropped."""

    WAITING = "waiting"
    SUPERSEDED = "superseded"
    REPLAYED = "replayed"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Settled:
    """The status of rows that waited and no longer do. Shape: places[N] with the position columns, N texts"""

    places: pa.Table
    status: Sequence[str]


@dataclass(frozen=True, slots=True)
class _RowState:
    """The state of one row in quarantine, and what may become of it.

    ``round`` is the LSN from which on it ``waits`` (1) or not (0); ``waited`` is the same until then.

        event      waits     waited    round        status        settled_at
        reverted   waited's  0         the row's    waiting       null
        ended      0         0         unchanged    superseded    now
        settled    0         waits'    the round's  the new       now
    """

    status: str
    settled_at: datetime | None
    round: int
    waits: int
    waited: int

    COLUMNS: ClassVar = ("status", "settled_at", "__round", "__waits", "__waited")

    def reverted(self, lsn: int) -> _RowState:
        """The lake did not reach the round. ``lsn`` is the row's own."""
        return _RowState(str(QuarantineStatus.WAITING), None, lsn, self.waited, 0)

    def ended(self, now: datetime) -> _RowState:
        """Another snapshot is in force."""
        return _RowState(str(QuarantineStatus.SUPERSEDED), now, self.round, 0, 0)

    def settled(self, status: str, round_lsn: int, now: datetime) -> _RowState:
        """It waits no more from the round to ``round_lsn`` on."""
        return _RowState(status, now, round_lsn, 0, self.waits)


def waiting_rows(table: DeltaTable, place: LakePosition) -> pa.Table:
    """Return the positions and ``reasons`` of rows not in the lake at ``place``, in order."""
    parts = []
    for file in table.files:
        if _is_at_rest(file, place) and file.maximum["__waits"] == 0:
            continue
        rows = table.read(file, [*_POSITION, "reasons", *_STATE.names])
        is_merged = (_ints(rows, _POSITION[0]) <= place.merged) | _are_reads(rows)
        is_there = (_ints(rows, "__token") == place.merge_token) & is_merged
        parts.append(rows.select([*_POSITION, "reasons"]).filter(pa.array(is_there & _wait(rows, place))))
    if not parts:
        fields = [("__commit_lsn", pa.int64()), ("__tx_index", pa.int64()), ("reasons", pa.list_(pa.string()))]
        return pa.schema(fields).empty_table()
    waiting = pa.concat_tables(parts)
    return waiting.take(pa.array(np.lexsort((_ints(waiting, _POSITION[1]), _ints(waiting, _POSITION[0])))))


def waiting_reasons(path: str, place: LakePosition) -> tuple[int, dict[str, int]]:
    """Return the number of waiting changes, and how many of them have each reason: a rule, or WAITS_FOR_EARLIER."""
    table = DeltaTable.open(path)
    if table is None:
        return 0, {}
    rows = waiting_rows(table, place)
    reasons = pc.list_flatten(rows.column("reasons").combine_chunks())
    counts = pc.value_counts(reasons).to_pylist() if len(reasons) else []
    return int(rows.num_rows), {str(entry["values"]): int(entry["counts"]) for entry in counts}


def refused_among(rows: pa.Table, table: DeltaTable, token: int) -> Bools:
    """Return which change rows are not in the lake, from the quarantine table. Shape: table[N] -> bool[N].

    ``token`` is that of the snapshot in force: it shows the rows that were refused under an earlier one.
    """
    refused = np.zeros(rows.num_rows, dtype=bool)
    for missing in _missing(table, token) if rows.num_rows else ():
        refused |= _is_in(rows, missing)
    return refused


def refused_reads(table: DeltaTable, token: int) -> pa.Table:
    """Return the positions of rows that were read from the source and are not in the lake (``refused_among``)."""
    none = pa.schema([(name, pa.int64()) for name in _POSITION]).empty_table()
    parts = (missing.filter(pa.array(_are_reads(missing))).select(_POSITION) for missing in _missing(table, token))
    return pa.concat_tables([none, *parts])


def _missing(table: DeltaTable, token: int) -> Iterator[pa.Table]:
    """Yield the rows of each file that are not in the lake, with their positions."""
    lost = pa.array([str(QuarantineStatus.WAITING), str(QuarantineStatus.DROPPED)], pa.string())
    for file in table.files:
        rows = _under(table.read(file, [*_POSITION, "status", "__token"]), token)
        yield rows.filter(pc.is_in(rows.column("status"), value_set=lost))


def quarantined_under(table: DeltaTable, token: int) -> pa.Table:
    """Return the positions of all change rows written to the table under a snapshot, whatever became of them."""
    parts = [_under(table.read(file, [*_POSITION, "__token"]), token).select(_POSITION) for file in table.files]
    return pa.concat_tables([pa.schema([(name, pa.int64()) for name in _POSITION]).empty_table(), *parts])


def first_waiting(path: str, place: LakePosition) -> int | None:
    """Return the commit LSN of the first waiting change; None if there is none."""
    table = DeltaTable.open(path)
    waiting = None if table is None else waiting_rows(table, place)
    return None if waiting is None or not waiting.num_rows else int(waiting.column("__commit_lsn")[0].as_py())


def write_quarantine(
    rows: pa.Table,
    path: str,
    place: LakePosition,
    round_lsn: int,
    settled: Settled | None = None,
    follows: bool = False,
) -> int:
    """Add rows that wait from the round to ``round_lsn`` on, and settle others; returns the number of new rows.

    ``rows`` contains the position columns, ``reasons`` array<string>, ``row`` and ``key`` (JSON text). A row is
    identified by its position and the snapshot in force (its token, which no table has twice), so a repeated round adds
    each row once; rows of a round that the lake did not reach (above ``place.merged``) are replaced by those of this
    one; if it ``follows`` others of the same round, whose slice is merged by several tasks, their rows are kept. Must
    be called before the merge.
    """
    now = datetime.now(UTC)
    fresh = _fresh(rows, place, round_lsn, now)
    table = DeltaTable.open(path) or DeltaTable.create(path, fresh.schema, {})

    def attempt() -> int:
        removed: list[DataFile] = []
        added: list[DataFile] = []
        known, new = np.zeros(fresh.num_rows, dtype=bool), np.ones(fresh.num_rows, dtype=bool)
        for file in table.files:
            if _is_at_rest(file, place) and not _is_named(file, place, settled):
                continue
            stored = table.read(file)
            kept = _brought_up(stored, place, round_lsn, settled, now, follows)
            # One server's position may be another change of another server, or the same one after a re-read.
            known |= _is_in(fresh, _under(stored, place.merge_token))
            new &= ~_is_in(fresh, _under(kept, place.merge_token))
            if kept is not stored:
                removed.append(file)
                added += [table.write(kept)] if kept.num_rows else []
        if new.any():
            added.append(table.write(conform(fresh.filter(pa.array(new)), table.schema)))
        if added or removed:
            table.commit(added, removed, txns={_APP: (table.txn(_APP) or 0) + 1})
            compact(table)
        return int(np.count_nonzero(~known))

    return on_conflict(attempt, table)


def kept_apart(rows: pa.Table, path: str) -> DataFile:
    """Write rows for ``write_quarantine`` to a file in the folder of the quarantine table, which is not part of it."""
    fresh = _fresh(rows.slice(0, 0), LakePosition(None, None), 0, datetime.now(UTC))
    table = DeltaTable.open(path) or DeltaTable.create(path, fresh.schema, {})
    return table.write_as(rows, rows.schema)


def add_kept(
    path: str, files: Sequence[DataFile], settled: Sequence[Settled], place: LakePosition, round_lsn: int
) -> None:
    """Add the rows that several tasks kept apart for a round, remove their files, and settle others that waited.

    As ``write_quarantine``: a repeated round adds each row once. One file is in memory.
    """
    table = DeltaTable.open(path)
    if table is None:
        raise unreadable_log(path, FileNotFoundError())
    own = {QUARANTINED_AT, *_STATE.names}
    kept = pa.schema([field for field in table.schema if field.name not in own])
    write_quarantine(kept.empty_table(), path, place, round_lsn, _joined(settled))
    for file in files:
        write_quarantine(table.read_as(file, kept), path, place, round_lsn, follows=True)
    table.discard(files)


def _joined(settled: Sequence[Settled]) -> Settled | None:
    """Return the new states of all rows; None if none has one."""
    if not settled:
        return None
    return Settled(
        pa.concat_tables([some.places for some in settled]),
        [status for some in settled for status in some.status],
    )


def quarantine_reads(path: str, parts: Iterable[pa.Table], token: int) -> None:
    """Add rows that a snapshot has read, which wait from the commit that puts it in force; one part is in memory.

    ``parts`` are as in ``write_quarantine``. ``token`` is the snapshot's.
    """
    table: DeltaTable | None = None
    files: list[DataFile] = []
    for part in parts:
        rows = _fresh(part, LakePosition(token, None), 0, datetime.now(UTC))
        table = table or DeltaTable.open(path) or DeltaTable.create(path, rows.schema, {})
        files.append(table.write(conform(rows, table.schema)))
    if table is None:
        return
    target = table
    on_conflict(lambda: target.commit(files, txns={_APP: (target.txn(_APP) or 0) + 1}), target)


def end_former(path: str, token: int) -> None:
    """Mark rows that waited under other snapshots as superseded, once the snapshot ``token`` is in force."""
    table, now = DeltaTable.open(path), datetime.now(UTC)
    if table is None:
        return
    quarantine = table

    def attempt() -> None:
        removed, added = list[DataFile](), list[DataFile]()
        for file in quarantine.files:
            if file.maximum.get("__waits") == 0 or file.minimum.get("__token") == token == file.maximum["__token"]:
                continue
            rows = quarantine.read(file)
            former = np.flatnonzero((_ints(rows, "__token") != token) & (_ints(rows, "__waits") != 0))
            if len(former):
                states = [state.ended(now) for state in _states(rows.take(pa.array(former)))]
                removed.append(file)
                added.append(quarantine.write(_with_states(rows, former, states)))
        if removed:
            quarantine.commit(added, removed, txns={_APP: (quarantine.txn(_APP) or 0) + 1})

    on_conflict(attempt, quarantine)


def _are_reads(rows: pa.Table) -> Bools:
    """Return which rows were read from the source, and are no changes. Shape: table[N] -> bool[N]."""
    return np.asarray(_ints(rows, _POSITION[1]) < 0)


def _is_at_rest(file: DataFile, place: LakePosition) -> bool:
    """Whether, by the log's statistics, the lake has reached all rounds and positions of a file's rows."""
    known = {"__waits", "__commit_lsn", "__round", "__token"} <= set(file.maximum) & set(file.minimum)
    return known and max(file.maximum["__commit_lsn"], file.maximum["__round"]) <= place.merged


def _is_named(file: DataFile, place: LakePosition, settled: Settled | None) -> bool:
    """Whether rows of a file at rest may change their state: they are settled, or waited under another snapshot."""
    is_of_now = file.minimum["__token"] == file.maximum["__token"] == place.merge_token
    if file.maximum["__waits"] > 0 and not is_of_now:
        return True
    lsns = np.zeros(0) if settled is None else settled.places.column("__commit_lsn").to_numpy()
    return bool(np.any((lsns >= file.minimum["__commit_lsn"]) & (lsns <= file.maximum["__commit_lsn"])))


def _fresh(rows: pa.Table, place: LakePosition, round_lsn: int, now: datetime) -> pa.Table:
    """Return the rows with the columns of their initial state."""
    count = rows.num_rows
    state = {
        QUARANTINED_AT: pa.array([now] * count, _AT),
        "status": pa.array([str(QuarantineStatus.WAITING)] * count, pa.string()),
        "settled_at": pa.nulls(count, _AT),
        "__token": pa.array(np.full(count, place.merge_token)),
        "__round": pa.array(np.full(count, round_lsn)),
        "__waits": pa.array(np.ones(count, dtype=np.int8)),
        "__waited": pa.array(np.zeros(count, dtype=np.int8)),
    }
    for name, values in state.items():
        rows = rows.append_column(name, values)
    return rows


def _wait(rows: pa.Table, place: LakePosition) -> Bools:
    """Return which rows wait with the lake at ``place``. Shape: table[N] -> bool[N]."""
    is_reached = _ints(rows, "__round") <= place.merged
    return np.asarray(np.where(is_reached, _ints(rows, "__waits"), _ints(rows, "__waited")) != 0)


def _brought_up(
    rows: pa.Table, place: LakePosition, round_lsn: int, settled: Settled | None, now: datetime, follows: bool
) -> pa.Table:
    """Return a file's rows after this round; the same object if none of them changes.

    Rows of a round that the lake did not reach are removed, and the states that it settled are reverted.
    """
    token, lsn, reached = (_ints(rows, name) for name in ("__token", "__commit_lsn", "__round"))
    mine = token == place.merge_token
    earlier = mine & (reached == round_lsn) if follows else np.zeros(rows.num_rows, dtype=bool)
    kept = earlier | _are_reads(rows) | ~(mine & (lsn > place.merged))
    undone = mine & kept & ~earlier & (reached > place.merged)
    # Rows of a later token were read by a snapshot that is not in force yet.
    ended = (token < place.merge_token) & (_ints(rows, "__waits") != 0)
    at = _places(rows, settled.places) if settled is not None else np.full(rows.num_rows, -1)
    at = np.where(mine & kept, at, -1)
    if kept.all() and not (undone.any() or ended.any() or (at >= 0).any()):
        return rows
    changing = np.flatnonzero(undone | ended | (at >= 0))
    states = []
    # row-wise: rows whose state changes
    for row, before in zip(changing.tolist(), _states(rows.take(pa.array(changing))), strict=True):
        state = before.reverted(int(lsn[row])) if undone[row] else before
        if ended[row]:
            state = state.ended(now)
        elif at[row] >= 0 and settled is not None:
            state = state.settled(str(settled.status[at[row]]), round_lsn, now)
        states.append(state)
    return _with_states(rows, changing, states).filter(pa.array(kept))


def _states(rows: pa.Table) -> list[_RowState]:
    columns = (_filled(rows, name).to_pylist() for name in _RowState.COLUMNS)
    return [_RowState(*values) for values in zip(*columns, strict=True)]


def _with_states(rows: pa.Table, changing: np.ndarray, states: Sequence[_RowState]) -> pa.Table:
    """Return the rows with new states of those at ``changing``. Shape: table[N], int64[C], C states -> table[N]."""
    source = np.arange(rows.num_rows)
    source[changing] = rows.num_rows + np.arange(len(changing))
    values = [astuple(state) for state in states]
    made = {}
    for number, name in enumerate(_RowState.COLUMNS):
        before = _filled(rows, name)
        after = pa.array([state[number] for state in values], before.type)
        made[name] = pa.concat_arrays([before, after]).take(pa.array(source))
    return _with_columns(rows, made)


def _with_columns(rows: pa.Table, made: Mapping[str, pa.Array]) -> pa.Table:
    for name, values in made.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), values)
    return rows


def _filled(rows: pa.Table, name: str) -> pa.Array:
    """Return a column of ``_RowState``; integers are 0 for null."""
    values = column(rows, name)
    return values.fill_null(0) if pa.types.is_integer(values.type) else values


def _under(rows: pa.Table, token: int) -> pa.Table:
    """Return the rows written under a snapshot. Shape: table[N] -> table[M]"""
    return rows.filter(pc.equal(rows.column("__token"), token))


def _is_in(rows: pa.Table, others: pa.Table) -> Bools:
    """Return which rows have the position of one of ``others``. Shape: table[N], table[M] -> bool[N]."""
    return _places(rows, others) >= 0


def _places(rows: pa.Table, others: pa.Table) -> Ints:
    """Return the index of each row's position in ``others``, -1 for none. Shape: table[N], table[M] -> int64[N]."""
    out = np.full(rows.num_rows, -1, dtype=np.int64)
    if not (rows.num_rows and others.num_rows):
        return out
    mine = rows.select(_POSITION).append_column("row", pa.array(np.arange(rows.num_rows)))
    theirs = others.select(_POSITION).append_column("other", pa.array(np.arange(others.num_rows)))
    matches = mine.join(theirs, keys=_POSITION, join_type="inner")
    out[matches.column("row").to_numpy()] = matches.column("other").to_numpy()
    return out


def _ints(rows: pa.Table, name: str) -> np.ndarray:
    """Return an integer column, 0 for null."""
    return np.asarray(rows.column(name).fill_null(0).to_numpy())
