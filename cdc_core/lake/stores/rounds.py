"""The Delta table of rounds: the version of each table that shows the source as of a given LSN.

One row per table and round, so a round can be read by itself. ``delta_version`` is null if the table does not show the
source at the round's LSN, and ``state`` is the reason:

    current     at ``delta_version`` the table has every transaction that committed up to ``round_lsn``, and no other
    behind      changes up to the LSN wait in its changelog
    ahead       it was read, or merged by a run that was ended, at a later LSN
    failed      the last merge failed; it is retried
    paused      it is not merged until it is resumed
    rereading   it is to be re-read, or is being read
    unread      there is no lake table yet

``snapshot`` and ``merged_lsn`` are the positions stored in the lake table (``positions``). They identify its content:
two versions with the same positions have the same rows, so a compaction does not invalidate a recorded round.
``table_id`` is the id that Delta gave the lake table: a table that was created again at its path has other versions
under the same numbers. ``epoch`` is that of the stream (``epochs``), null for 0: LSNs of different epochs do not
compare. Rounds are numbered; their LSN never decreases within an epoch. The number, the LSN and the epoch of the newest
are in the commit's ``txn`` actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.log_table import log_table
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.compaction import is_its_turn, maintain_after
from cdc_core.lake.schema.lake_schema import file_minutes, lake_properties
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId

_TIME = pa.timestamp("us", tz="UTC")
_SCHEMA = pa.schema(
    [
        ("round", pa.int64()),
        ("round_lsn", pa.int64()),
        ("committed_at", _TIME),
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("delta_version", pa.int64()),
        ("state", pa.string()),
        ("snapshot", pa.int64()),
        ("merged_lsn", pa.int64()),
        ("recorded_at", _TIME),
        ("epoch", pa.int64()),
        ("table_id", pa.string()),
    ]
)
_HEAD = ["round", "round_lsn", "committed_at", "recorded_at"]
_NUMBER, _LSN, _EPOCH = "wal2lake:rounds", "wal2lake:rounds:lsn", "wal2lake:rounds:epoch"
_EXPIRE_EVERY = 100


class TableState(StrEnum):
    """State of a table relative to a round's LSN (see the module's docstring)."""

    CURRENT = "current"
    BEHIND = "behind"
    AHEAD = "ahead"
    FAILED = "failed"
    PAUSED = "paused"
    REREADING = "rereading"
    UNREAD = "unread"


@dataclass(frozen=True, slots=True)
class RecordedTable:
    """One table in a round. ``version`` is None unless the state is CURRENT.

    ``snapshot`` and ``merged_lsn`` are the positions stored in the lake table; None if it has none. ``identity`` is the
    table's id in Delta; None without a version.
    """

    table: TableId
    state: TableState
    version: int | None
    snapshot: int | None = None
    merged_lsn: int | None = None
    identity: str | None = None


@dataclass(frozen=True, slots=True)
class RoundHead:
    """A round without its tables. ``committed_at`` is the source's commit time of its last transaction, if known.

    ``lsn`` is of the stream's ``epoch``.
    """

    number: int
    lsn: Lsn
    committed_at: datetime | None
    recorded_at: datetime
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Round:
    """One recorded round, its tables ordered by name."""

    head: RoundHead
    tables: tuple[RecordedTable, ...]


class RoundLog:
    """The table of rounds of one connector. For one thread; other processes may write to it too.

    ``history_minutes`` is the lake's: rounds are removed when their versions can no longer be read; 0 keeps all.
    ``epoch`` is that of the rounds appended.
    """

    def __init__(self, path: str, history_minutes: int, epoch: int = 0) -> None:
        self._path = path
        self.epoch = epoch
        self._history = history_minutes
        self._opened: DeltaTable | None = None

    @property
    def newest_lsn(self) -> Lsn | None:
        """The LSN of the newest round as of the last ``refresh`` or ``append``; None before the epoch's first."""
        log = self._opened
        lsn = None if log is None or (log.txn(_EPOCH) or 0) != self.epoch else log.txn(_LSN)
        return None if lsn is None else Lsn(lsn)

    def refresh(self) -> bool:
        """Load the rounds recorded since; returns whether there is any round."""
        if self._opened is None:
            self._opened = DeltaTable.open(self._path)
        else:
            self._opened.refresh()
        return self._opened is not None and self._opened.txn(_NUMBER) is not None

    def append(self, lsn: int, committed_at: datetime | None, tables: Sequence[RecordedTable]) -> bool:
        """Record a round in one commit; returns False if there is a round of a later LSN or epoch already.

        Raises TransientError after repeated conflicts with another writer.
        """
        log = log_table(self._opened, self._path, _SCHEMA, lake_properties(self._history))
        self._opened, since = log, log.version

        def attempt() -> bool:
            newest, epoch = log.txn(_LSN), log.txn(_EPOCH) or 0
            if newest is not None and (epoch, newest) > (self.epoch, lsn):
                return False
            number = (log.txn(_NUMBER) or 0) + 1
            rows = _rows(number, lsn, committed_at, tables, self.epoch)
            log.commit([log.write(rows)], txns={_NUMBER: number, _LSN: int(lsn), _EPOCH: self.epoch})
            return True

        if not on_conflict(attempt, log):
            return False
        if self._history and is_its_turn(log, since, _EXPIRE_EVERY):
            self._expire(log)
        maintain_after(log, since, self._history)
        return True

    def heads(self) -> list[RoundHead]:
        """Return all rounds that are kept, oldest first."""
        names = [*_HEAD, "epoch"]
        parts = [self._opened.read(file, names) for file in self._opened.files] if self._opened is not None else []
        if not parts:
            return []
        rows = pa.concat_tables(parts).group_by("round").aggregate([(name, "max") for name in names[1:]])
        rows = rows.filter(pc.is_valid(rows.column("round"))).sort_by("round")
        # row-wise: a few thousand rounds at most, requested by a user
        return [
            RoundHead(
                row["round"],
                Lsn(row["round_lsn_max"]),
                row["committed_at_max"],
                row["recorded_at_max"],
                row["epoch_max"] or 0,
            )
            for row in rows.to_pylist()
        ]

    def round(self, number: int) -> Round | None:
        """Return one round; None if it is not kept. Only files that may contain it are read."""
        if self._opened is None:
            return None
        files = [file for file in self._opened.files if _may_hold(file, "round", number)]
        parts = [_of_round(self._opened.read(file), number) for file in files]
        rows = pa.concat_tables(parts).to_pylist() if parts else []  # row-wise: one per table
        if not rows:
            return None
        first = rows[0]
        lsn, epoch = Lsn(first["round_lsn"]), first.get("epoch") or 0
        head = RoundHead(number, lsn, first["committed_at"], first["recorded_at"], epoch)
        return Round(head, tuple(sorted((_recorded(row) for row in rows), key=lambda entry: entry.table)))

    def behind(self, names: Sequence[TableId] = ()) -> set[int]:
        """Return the numbers of the rounds in which a table, or one of those named, is behind."""
        log, columns, behind = self._opened, ["round", "schema_name", "table_name", "state"], TableState.BEHIND.value
        # Of many tables and rounds without such a table, none is read.
        files = [] if log is None else [file for file in log.files if _may_hold(file, "state", behind)]
        every = [] if log is None else [log.read(file, columns) for file in files]
        parts = [rows.filter(pc.equal(rows.column("state"), behind)) for rows in every]
        # row-wise: tables that are merged less often than others, once a round
        rows = [row for part in parts for row in part.to_pylist()]
        return {row["round"] for row in rows if not names or TableId(row["schema_name"], row["table_name"]) in names}

    def newest(self) -> Round | None:
        """Return the newest round as of the last ``refresh`` or ``append``."""
        number = None if self._opened is None else self._opened.txn(_NUMBER)
        return None if number is None else self.round(number)

    def newest_of_epoch(self) -> Round | None:
        """Load the rounds recorded since, and return the newest; None before the epoch's first."""
        newest = self.newest() if self.refresh() else None
        return newest if newest is not None and newest.head.epoch == self.epoch else None

    def _expire(self, log: DeltaTable) -> None:
        """Remove rounds older than any version that can still be read, from files that mostly contain such rounds."""
        before = datetime.now(UTC) - timedelta(minutes=2 * file_minutes(self._history) + 60)

        def attempt() -> None:
            gone: list[DataFile] = []
            kept: list[DataFile] = []
            for file in log.files:
                at = log.read(file, ["recorded_at"]).column("recorded_at")
                is_kept = pc.greater_equal(at, pa.scalar(before, _TIME))
                left = int(pc.sum(is_kept).as_py() or 0)
                if 2 * left > file.rows:
                    continue
                gone.append(file)
                if left:
                    kept.append(log.write(log.read(file).filter(is_kept)))
            if gone:
                log.commit(kept, gone)

        on_conflict(attempt, log)


def _rows(
    number: int, lsn: int, committed_at: datetime | None, tables: Sequence[RecordedTable], epoch: int
) -> pa.Table:
    count, now = len(tables), datetime.now(UTC)
    columns = [
        pa.repeat(pa.scalar(number, pa.int64()), count),
        pa.repeat(pa.scalar(int(lsn), pa.int64()), count),
        pa.repeat(pa.scalar(committed_at, _TIME), count),
        pa.array([entry.table.schema for entry in tables], pa.string()),
        pa.array([entry.table.table for entry in tables], pa.string()),
        pa.array([entry.version for entry in tables], pa.int64()),
        pa.array([str(entry.state) for entry in tables], pa.string()),
        pa.array([entry.snapshot for entry in tables], pa.int64()),
        pa.array([entry.merged_lsn for entry in tables], pa.int64()),
        pa.repeat(pa.scalar(now, _TIME), count),
        pa.repeat(pa.scalar(epoch or None, pa.int64()), count),
        pa.array([entry.identity for entry in tables], pa.string()),
    ]
    return pa.Table.from_arrays(columns, schema=_SCHEMA)


def _may_hold(file: DataFile, column: str, value: int | str) -> bool:
    low, high = file.minimum.get(column, value), file.maximum.get(column, value)
    return bool(low <= value <= high)


def _of_round(rows: pa.Table, number: int) -> pa.Table:
    return rows.filter(pc.equal(rows.column("round"), number))


def _recorded(row: dict[str, object]) -> RecordedTable:
    def number(name: str) -> int | None:
        value = row[name]
        return value if isinstance(value, int) else None

    return RecordedTable(
        TableId(str(row["schema_name"]), str(row["table_name"])),
        TableState(str(row["state"])),
        number("delta_version"),
        number("snapshot"),
        number("merged_lsn"),
        None if row.get("table_id") is None else str(row["table_id"]),
    )
