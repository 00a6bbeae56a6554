"""The record of the stream: whose positions the lake holds, and the highest LSN that it may have confirmed to the slot.

One row, replaced as a whole when it changes: system identifier, timeline and its history, database, slot, epoch. What
advances with the stream is in ``txn`` actions of the same table, so that recording it writes no data file:

    wal2lake:stream:<epoch>:confirmed     the highest LSN that may have been confirmed to the slot
    wal2lake:stream:<epoch>:commit_lsn    commit LSN of the last captured transaction that was durable by then
    wal2lake:stream:<epoch>:commit_xid    its transaction id
    wal2lake:stream:<epoch>:commit_ts     its commit time, in microseconds since 1970

An *epoch* is a part of the stream without a gap. The first is 0, also for a lake without a record. A new one begins
(``begin``) when what the lake holds cannot be continued: another server or history, or a slot that was advanced, used
or made by somebody else. Positions belong to their epoch (``epochs``), so that in a new one every table is unread.

``confirmed`` of a new epoch is 0, which means that the slot has not been seen yet: its position at that time, whatever
it is, is recorded before any table of the epoch is read into the lake.

Two writers conflict: every commit has the ``txn`` id ``wal2lake:stream``, and the row is replaced by removing its file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from cdc_core.errors import CommitConflictError
from cdc_core.lake.delta.log_table import all_rows, log_table, state_of
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.cleaning import clean
from cdc_core.lake.maintenance.compaction import is_its_turn
from cdc_core.lake.schema.lake_schema import lake_properties
from cdc_core.lsn import Lsn

_SCHEMA = pa.schema(
    [
        ("system_id", pa.string()),
        ("timeline", pa.int64()),
        ("history", pa.string()),
        ("database", pa.string()),
        ("database_oid", pa.int64()),
        ("slot", pa.string()),
        ("asked", pa.string()),
        ("epoch", pa.int64()),
        ("broken", pa.string()),
        ("gap", pa.string()),
        ("adopted", pa.string()),
        ("recorded_at", pa.timestamp("us", tz="UTC")),
    ]
)
_ANY = "wal2lake:stream"
_CLEAN_EVERY = 100
_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class LastCommit:
    """A captured transaction by which a history is recognised. ``ts_us``: commit time in microseconds since 1970."""

    lsn: Lsn
    xid: int
    ts_us: int


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """What the lake's stream is.

    ``confirmed``: the highest LSN that may have been confirmed to the slot; 0 if the slot was not seen yet.
    ``history``: the timelines before ``timeline``, each with the LSN at which it was left. ``asked``: the publication
    and the parameters of the stream, on which it depends whether ``last`` is sent again. ``broken``: why the stream is
    known not to continue what the lake holds, else empty. ``gap``: what a user accepted as missing, else empty.
    ``adopted``: what was decided when the stream was taken over from another connector (``offsets/delivered``), else
    empty.
    """

    system_id: str
    timeline: int
    database: str
    slot: str
    confirmed: Lsn = field(default_factory=Lsn)
    epoch: int = 0
    history: tuple[tuple[int, Lsn], ...] = ()
    database_oid: int = 0
    asked: str = ""
    last: LastCommit | None = None
    broken: str = ""
    gap: str = ""
    adopted: str = ""


class StreamLog:
    """The record of one connector's lake. For one thread, and for the only active run."""

    def __init__(self, path: str, history_minutes: int) -> None:
        self._path = path
        self._history = history_minutes
        self._opened: DeltaTable | None = None
        self._known: StreamRecord | None = None
        self._is_fenced = False

    @property
    def known(self) -> StreamRecord | None:
        """The record as of the last ``read``, ``write`` or ``confirm``."""
        return self._known

    def read(self) -> StreamRecord | None:
        """Return the record; None for a lake that has none. Raises LakeError if it cannot be read."""
        self._is_fenced = False
        self._opened = DeltaTable.open(self._path)
        self._known = _record(self._opened)
        return self._known

    def write(self, record: StreamRecord) -> None:
        """Replace the record. Raises CommitConflictError if another run has changed it since."""
        log = log_table(self._opened, self._path, _SCHEMA, lake_properties(self._history))
        self._opened, since = log, log.version
        row = pa.Table.from_pylist([_row(record)], schema=_SCHEMA)
        self._commit(log, lambda: log.commit([log.write(row)], log.files, txns=_txns(record)))
        self._known = record
        self._maintain(log, since)

    def confirm(self, lsn: Lsn, last: LastCommit | None) -> None:
        """Record an LSN, and the last captured transaction, before the LSN is confirmed to the slot.

        Raises CommitConflictError if another run has changed the record since it was read.
        """
        assert self._known is not None
        assert self._opened is not None
        log, since = self._opened, self._opened.version
        # What is sent again after a kill ends with transactions that were captured before the recorded one.
        newest = max(
            (commit for commit in (last, self._known.last) if commit is not None),
            key=lambda commit: commit.lsn,
            default=None,
        )
        record = replace(self._known, confirmed=lsn, last=newest)
        self._commit(log, lambda: log.commit(txns=_txns(record)))
        self._known = record
        self._maintain(log, since)

    def _commit(self, log: DeltaTable, attempt: Callable[[], object]) -> None:
        """Commit; repeat it after a conflict with maintenance, which does not change the record."""
        for left in reversed(range(_ATTEMPTS)):
            if self._is_fenced:
                break
            try:
                attempt()
                return
            except CommitConflictError:
                log.refresh()
                self._is_fenced = not left or _record(log) != self._known
        raise CommitConflictError(
            "Another run of wal2lake has changed the record of the stream in this lake.",
            "Stop the other run: only one run may write to a lake at a time.",
        )

    def _maintain(self, log: DeltaTable, since: int) -> None:
        if self._history and is_its_turn(log, since, _CLEAN_EVERY):
            clean(log, self._history)

    def begin(self, stream: StreamRecord, *, is_first: bool, after: int = 0) -> StreamRecord:
        """Begin an epoch of the ``stream``, before anything of it is read into the lake; returns the record.

        The number follows that of the record in the log. Without a record it is 0 if the lake holds nothing yet
        (``is_first``), else 1: what a release before the record wrote belongs to epoch 0. It is later than ``after``,
        the latest epoch of what the lake holds. ``confirmed`` is 0, except of a stream that was ``adopted``, whose slot
        has been seen.
        """
        before = self.read()
        epoch = before.epoch + 1 if before is not None else 0 if is_first else 1
        epoch = max(epoch, after + 1) if after else epoch
        confirmed = stream.confirmed if stream.adopted else Lsn(0)
        record = replace(stream, epoch=epoch, confirmed=confirmed, last=None, broken="", gap="")
        self.write(record)
        return record


def read_stream(path: str) -> StreamRecord | None:
    """Return the record at ``path``; None for a lake that has none. Raises LakeError if it cannot be read."""
    return _record(DeltaTable.open(path))


class StreamReader:
    """``read_stream`` for who asks often: the record is read again only when the log's folder shows a change."""

    def __init__(self) -> None:
        self._last: tuple[tuple[str, tuple[str, int, int]], StreamRecord | None] | None = None

    def read(self, path: str) -> StreamRecord | None:
        """Return the record at ``path``; None for a lake that has none. Raises LakeError if it cannot be read."""
        state, last = state_of(path), self._last
        if state is not None and last is not None and last[0] == (path, state):
            return last[1]
        record = read_stream(path)
        # What was committed between the two reads is found next time, when the folder's state is a later one.
        self._last = None if state is None else ((path, state), record)
        return record


def _record(log: DeltaTable | None) -> StreamRecord | None:
    rows = all_rows(log, _SCHEMA).to_pylist()  # row-wise: one row
    if log is None or not rows:
        return None
    row = rows[-1]
    epoch = row["epoch"] or 0

    def at(name: str) -> int | None:
        return log.txn(_app(epoch, name))

    lsn, xid, ts = at("commit_lsn"), at("commit_xid"), at("commit_ts")
    return StreamRecord(
        row["system_id"],
        row["timeline"],
        row["database"],
        row["slot"],
        Lsn(at("confirmed") or 0),
        epoch,
        tuple((timeline, Lsn(left)) for timeline, left in json.loads(row["history"] or "[]")),
        row["database_oid"] or 0,
        row["asked"] or "",
        None if not lsn else LastCommit(Lsn(lsn), xid or 0, ts or 0),
        row["broken"] or "",
        row["gap"] or "",
        row["adopted"] or "",
    )


def _row(record: StreamRecord) -> dict[str, Any]:
    return {
        "system_id": record.system_id,
        "timeline": record.timeline,
        "history": json.dumps([[timeline, int(left)] for timeline, left in record.history]),
        "database": record.database,
        "database_oid": record.database_oid,
        "slot": record.slot,
        "asked": record.asked,
        "epoch": record.epoch,
        "broken": record.broken,
        "gap": record.gap,
        "adopted": record.adopted,
        "recorded_at": datetime.now(UTC),
    }


def _txns(record: StreamRecord) -> dict[str, int]:
    versions = {"confirmed": int(record.confirmed)}
    if record.last is not None:
        versions |= {
            "commit_lsn": int(record.last.lsn),
            "commit_xid": record.last.xid,
            "commit_ts": record.last.ts_us,
        }
    return {_ANY: record.epoch} | {_app(record.epoch, name): version for name, version in versions.items()}


def _app(epoch: int, name: str) -> str:
    return f"wal2lake:stream:{epoch}:{name}"
