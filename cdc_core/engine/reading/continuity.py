"""Whether the stream of a slot continues what a lake holds: the record of the lake compared with the server.

    record (``lake/stores/stream_log``)  system identifier, timelines, database, slot, highest LSN ever confirmed
    facts  (``postgres/replication/stream_identity``)      the same of the connection that is about to be used
    held                                the highest LSN up to which any table of the lake has changes

An LSN means something on one history of one server. Two histories are the same up to the LSN at which one of them left
the timeline that both had, so positions compare if that LSN is not before what is held. On the same timeline a server
that was restored can only be recognised by its WAL: a WAL end below that LSN proves another history; if it has
grown past that again, the transaction that was captured last must be sent again, exactly, before any later one
(``CommitWatch``).

On one history, ``confirmed_flush_lsn`` of the slot is never beyond what was recorded, because each LSN is recorded
before it is sent. If it is, somebody else read from the slot, advanced it, or made it anew, and the changes between are
missing. A slot that is behind only sends again what the lake recognises.

Order of steps, and a kill between any two of them. B: an epoch begins (``confirmed`` 0). S: the slot exists, made by
this run or before. C: its position is recorded. T: tables are read into the lake. R: an LSN is recorded. F: it is
confirmed to the slot.

* B, then S, then C, then T. Killed before C, the next start finds ``confirmed`` 0 and records the slot's position,
  whatever it is: no table of the epoch has been read, so nothing can be missing from one. Killed during T, the slot is
  not beyond the record, and the tables that were not committed are unread in the epoch, so they are read.
* changes durable, then R, then F. Killed before R, the slot sends the changes again. Killed between R and F, the slot
  is behind the record: no alarm. What is between is in the lake, because R follows the changes.
* A server that crashes may lose what it was told (F): the slot is then behind, as above.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from cdc_core.decode import SortedSegment
from cdc_core.errors import SourceError
from cdc_core.lake import LastCommit, StreamRecord
from cdc_core.lsn import Lsn
from cdc_core.postgres import StreamFacts

_REREAD = "Re-read all tables with wal2lake snapshot, or set snapshot.mode=when_needed to re-read them automatically."
_END = Lsn(2**64 - 1)


class Break(StrEnum):
    """Why a stream does not continue what the lake holds."""

    SERVER = "another server"
    HISTORY = "another history"
    DATABASE = "another database"
    SLOT_NAME = "another slot"
    SLOT_MISSING = "slot missing"
    SLOT_AHEAD = "slot ahead"
    BROKEN = "another history in the stream"
    RECORD = "record lost"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The actual and the expected state; the remedy is the same for all: everything is read again."""

    kind: Break
    message: str
    remedy: str = _REREAD

    def error(self) -> SourceError:
        """The error that ends an operation which needs the stream to continue."""
        return SourceError(self.message, self.remedy)


def record_lost(recorded: int, epoch: int, path: str) -> Mismatch | None:
    """Return a mismatch if lake tables are of a later epoch than the record of the stream, or than none (0)."""
    if epoch <= recorded:
        return None
    defect = f"knows {recorded} of them" if recorded else "is missing"
    return Mismatch(
        Break.RECORD,
        f"The lake's tables were read again {epoch} times after gaps in their stream, but the record of the stream in "
        f"{path} {defect}: it was removed or is an older copy, so it is not known what the tables hold.",
    )


def departure(record: StreamRecord, facts: StreamFacts) -> Lsn | None:
    """Return the LSN at which the server's history differs from the recorded one; None if it does not.

    0 if the server has lost its history file.
    """
    if facts.history is None:
        return None if facts.timeline == record.timeline else Lsn(0)
    common = Lsn(0)
    mine = [*record.history, (record.timeline, _END)]
    theirs = [*facts.history, (facts.timeline, _END)]
    for (timeline, left), (other, left_there) in zip(mine, theirs, strict=False):
        if timeline != other:
            return common
        if left != left_there:
            return min(left, left_there)
        common = left
    return None


def judge(record: StreamRecord, facts: StreamFacts, lake_lsn: Lsn, slot: str) -> Mismatch | None:
    """Return why the stream does not continue the record; None if it does.

    ``lake_lsn`` is the lowest LSN at which a history has everything that the lake's tables hold, ``slot`` the
    configured name. A missing slot is a mismatch only if the position of one is recorded.
    """
    return _judge_server(record, facts) or _judge_history(record, facts, lake_lsn) or _judge_slot(record, facts, slot)


def _judge_server(record: StreamRecord, facts: StreamFacts) -> Mismatch | None:
    if facts.system_id != record.system_id:
        return Mismatch(
            Break.SERVER,
            f"The server has the system identifier {facts.system_id}, but the lake was filled from a server with "
            f"{record.system_id}: positions of one mean nothing on the other.",
            f"Correct database.hostname if this is not the intended server. Otherwise: {_REREAD}",
        )
    if facts.database_oid != record.database_oid:
        return Mismatch(
            Break.DATABASE,
            f"The connector captures database {facts.database} (OID {facts.database_oid}), but the lake was filled "
            f"from database {record.database} (OID {record.database_oid}) of the same server.",
            f"Correct database.dbname if this is not the intended database. Otherwise: {_REREAD}",
        )
    return None


def _judge_history(record: StreamRecord, facts: StreamFacts, lake_lsn: Lsn) -> Mismatch | None:
    reach = max(record.confirmed, lake_lsn)
    left = departure(record, facts)
    if left is not None and left < reach:
        return Mismatch(
            Break.HISTORY,
            f"The server is on timeline {facts.timeline}, whose history differs at {left} from that of timeline "
            f"{record.timeline}, from which the lake holds changes up to {reach}: positions of one mean nothing on "
            "the other.",
        )
    if facts.flushed < reach and not facts.is_standby:
        return Mismatch(
            Break.HISTORY,
            f"The server's WAL ends at {facts.flushed}, but the lake holds changes up to {reach} of a server with the "
            "same system identifier: it was restored from a backup, and its positions have another meaning now.",
        )
    return Mismatch(Break.BROKEN, record.broken) if record.broken else None


def _judge_slot(record: StreamRecord, facts: StreamFacts, slot: str) -> Mismatch | None:
    if not record.confirmed:
        return None
    if slot != record.slot:
        return Mismatch(
            Break.SLOT_NAME,
            f"slot.name is {slot}, but the lake was filled from slot {record.slot}: changes between the two are "
            "missing.",
            f"Set slot.name={record.slot}. Otherwise: {_REREAD}",
        )
    state = facts.slot
    if not state.exists or state.confirmed_lsn is None:
        return Mismatch(
            Break.SLOT_MISSING,
            f"Replication slot {slot} no longer exists, and lake tables depend on it: changes since its "
            "last confirmed position are lost.",
        )
    if state.confirmed_lsn > record.confirmed:
        return Mismatch(
            Break.SLOT_AHEAD,
            f"Slot {slot} is at {state.confirmed_lsn}, but this lake has never confirmed more than {record.confirmed}: "
            "the slot was read by another consumer, advanced, or created again, and the changes in between are "
            "missing.",
            f"Make sure that nothing else uses the slot. {_REREAD}",
        )
    return None


class BrokenStreamError(SourceError):
    """The stream does not contain what the lake holds: found while streaming. ``message`` is for the record."""


class CommitWatch:
    """Demands that the transaction captured last is sent again before any later one. Used by the reader's threads.

    ``expected`` is None if the slot starts after it.
    """

    def __init__(self, expected: LastCommit | None, slot: str) -> None:
        self._expected = expected
        self._slot = slot

    def note(self, segment: SortedSegment) -> None:
        """Check the transactions of a segment. Raises BrokenStreamError before anything later is used."""
        expected = self._expected
        if expected is None:
            return
        marks = segment.transactions
        # A transaction is checked where it begins, so that no part of a later one is used.
        late = np.flatnonzero(marks.column("commit_lsn").to_numpy() >= int(expected.lsn))
        if not len(late):
            return
        row = {name: marks.column(name)[int(late[0])].as_py() for name in ("commit_lsn", "xid", "commit_ts_us")}
        if row != {"commit_lsn": int(expected.lsn), "xid": expected.xid, "commit_ts_us": expected.ts_us}:
            raise self._broken(expected)
        self._expected = None

    def note_silence(self, lsn: int) -> None:
        """Check that the server did not pass the transaction without sending it. Raises BrokenStreamError."""
        expected = self._expected
        if expected is not None and lsn > int(expected.lsn):
            raise self._broken(expected)

    def _broken(self, expected: LastCommit) -> BrokenStreamError:
        return BrokenStreamError(
            f"Slot {self._slot} did not send the transaction {expected.xid} that committed at {expected.lsn}, which "
            "the lake holds: the server was restored from a backup, and its positions have another meaning now.",
            _REREAD,
        )
