"""Translates a stream with transactions in progress and prepared ones (protocol versions 2 and 3) to version 1.

With ``streaming`` the server sends a transaction that does not fit into its logical_decoding_work_mem while it is still
running: in blocks between those of other transactions, each row message with the id of its subtransaction. With
``two_phase`` it sends a prepared transaction at PREPARE TRANSACTION, and its end when it is decided. ::

    Stream Start 7 · Relation · Insert · Insert · Stream Stop · Begin 9 · Insert · Commit 9 ·
    Stream Start 7 · Update · Stream Stop · Stream Abort 7, subtransaction 8 · Stream Commit 7 ·
    Begin Prepare 10 · Insert · Prepare 10 · Begin 11 · Insert · Commit 11 · Commit Prepared 10

Both can come together: the blocks of a transaction that is prepared end with Stream Prepare.

The messages of such a transaction are kept, without the ids, as protocol version 1 would send them, and passed on at
its Stream Commit or Commit Prepared between a Begin and a Commit. So everything after this knows one protocol, in which
transactions follow one another in the order of their commits, and nothing of a transaction is passed on that may still
be rolled back.

A Stream Abort of a subtransaction removes all that was kept since its first message: subtransactions are nested, so all
of it belongs to the subtransaction or to those inside it. (The server writes the top-level id into logical messages, so
only this order says to which subtransaction they belong.)

Confirming a position while a transaction is kept loses nothing: the server begins again with the first change of every
transaction that commits after the confirmed position. Of prepared ones this is so because every connection has
``two_phase`` from its own start on: what was prepared before comes whole, again, at its Commit Prepared. Hence
``is_open`` is always false, and what is kept is not needed after the connection has ended.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cdc_core.decode.held import HeldSegments
from cdc_core.decode.pgoutput.kept import Ending, KeptFrames, KeptTransaction
from cdc_core.decode.pgoutput.relations_in_force import RelationsInForce
from cdc_core.decode.segment import Segment, grouped
from cdc_core.errors import InProgressLimitError

_START, _STOP, _COMMIT, _ABORT = ord("S"), ord("E"), ord("c"), ord("A")
_BEGIN_PREPARE, _PREPARE, _STREAM_PREPARE = ord("b"), ord("P"), ord("p")
_COMMIT_PREPARED, _ROLLBACK_PREPARED = ord("K"), ord("r")
_START_BODY = struct.Struct("!cIB")  # kind, transaction, first block of it
_COMMIT_BODY = struct.Struct("!cIBqqq")  # kind, transaction, flags, LSN of the commit, end LSN, time
_ABORT_BODY = struct.Struct("!cII")  # kind, transaction, subtransaction or the transaction itself
# With the identifier of the prepared transaction at the end.
_BEGIN_PREPARE_BODY = struct.Struct("!cqqqI")  # kind, LSN of the PREPARE, end LSN, time, transaction
_DECISION_BODY = struct.Struct("!cBqqqI")  # kind, flags, LSN of PREPARE or COMMIT, end LSN, time, transaction
_ROLLBACK_BODY = struct.Struct("!cBqqqqI")  # kind, flags, end LSN of both, times of both, transaction

_IS_CONTROL = np.zeros(256, dtype=bool)
_IS_CONTROL[[_START, _STOP, _COMMIT, _ABORT]] = True
_IS_CONTROL[[_BEGIN_PREPARE, _PREPARE, _STREAM_PREPARE, _COMMIT_PREPARED, _ROLLBACK_PREPARED]] = True
_SEGMENT_BYTES = 16 << 20
_MEMORY_BYTES = 64 << 20
MAX_BYTES = 16 << 30


class InProgressTranslator:
    """As ``Translator``. ``folder``: where large transactions are kept, in files without names; None: the system's.

    What is kept in memory is at most ``memory_bytes``, in memory and files together at most ``max_bytes`` and one
    segment, each of all transactions together.
    """

    is_open = False

    def __init__(
        self, folder: Path | None = None, memory_bytes: int = _MEMORY_BYTES, max_bytes: int = MAX_BYTES
    ) -> None:
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._max_bytes = max_bytes
        self._kept: dict[int, KeptTransaction] = {}
        self._prepared: set[int] = set()
        self._block: KeptTransaction | None = None
        self._relations = RelationsInForce()

    def feed(self, segment: Segment) -> Iterator[Segment]:
        """Return what protocol version 1 would send up to here; ``Translator.feed``.

        Raises InProgressLimitError.
        """
        yield from grouped(self._translated(segment), _SEGMENT_BYTES)

    def close(self) -> None:
        """Forget what is kept."""
        for kept in self._kept.values():
            kept.messages.close()
        self._kept, self._prepared, self._block = {}, set(), None

    def _translated(self, segment: Segment) -> Iterator[Segment]:
        frames = KeptFrames(segment)
        first = 0
        # row-wise: twice for each block, once for each end
        for control in np.flatnonzero(_IS_CONTROL[frames.kinds]).tolist():
            yield from self._between(frames, first, control)
            yield from self._controlled(frames, control)
            first = control + 1
        yield from self._between(frames, first, len(segment))

    def _between(self, frames: KeptFrames, first: int, last: int) -> Iterator[Segment]:
        if first == last:
            return
        if self._block is None:
            yield from self._relations.passing(frames, first, last)
            return
        self._block.add(frames, first, last)
        self._relations.note_kept(self._block, frames, first, last)
        if sum(kept.messages.bytes_kept for kept in self._kept.values()) > self._max_bytes:
            raise InProgressLimitError(self._max_bytes)
        self._spill()

    def _controlled(self, frames: KeptFrames, at: int) -> Iterator[Segment]:
        kind = int(frames.kinds[at])
        ending = None if self._block is None else _STOP if self._block.has_xids else _PREPARE
        if ending != (kind if kind in (_STOP, _PREPARE) else None):
            raise frames.error(at, "a Stream Stop or a Prepare at the end of each block", "another message")
        if kind == _START:
            self._start(frames, at)
        elif kind == _STOP:
            self._block = None
        elif kind == _ABORT:
            self._abort(frames, at)
        elif kind == _COMMIT:
            yield from self._commit(frames, at)
        elif kind == _COMMIT_PREPARED:
            yield from self._commit_prepared(frames, at)
        else:
            self._two_phase(frames, at, kind)

    def _start(self, frames: KeptFrames, at: int) -> None:
        _, xid, is_first = frames.unpacked(at, _START_BODY, "Stream Start")
        if is_first:
            self._begin(xid, has_xids=True)
            self._kept[xid].header = frames.header(at)
        if xid not in self._kept or xid in self._prepared:
            raise frames.error(at, f"the first block of transaction {xid} before the others", "none")
        self._block = self._kept[xid]

    def _abort(self, frames: KeptFrames, at: int) -> None:
        _, xid, ended = frames.unpacked(at, _ABORT_BODY, "Stream Abort")
        if ended == xid:
            self._forget(xid)
        elif xid in self._kept:
            self._kept[xid].cut(ended)

    def _commit(self, frames: KeptFrames, at: int) -> Iterator[Segment]:
        _, xid, flags, commit_lsn, end_lsn, time = frames.unpacked(at, _COMMIT_BODY, "Stream Commit")
        if xid not in self._kept or xid in self._prepared:
            raise frames.error(at, f"the blocks of transaction {xid} before its end", "none")
        end = Ending(frames.header(at), flags, commit_lsn, end_lsn, time)
        yield from self._passed_on(xid, end, by_blocks=True)

    def _two_phase(self, frames: KeptFrames, at: int, kind: int) -> None:
        if kind == _BEGIN_PREPARE:
            xid = frames.unpacked(at, _BEGIN_PREPARE_BODY, "Begin Prepare", has_gid=True)[-1]
            self._begin(xid, has_xids=False)
            self._block = self._kept[xid]
        elif kind == _ROLLBACK_PREPARED:
            # Of a transaction that was prepared before the stream's start nothing was sent.
            self._forget(frames.unpacked(at, _ROLLBACK_BODY, "Rollback Prepared", has_gid=True)[-1])
        else:
            xid = frames.unpacked(at, _DECISION_BODY, "Prepare", has_gid=True)[-1]
            if kind == _PREPARE and (self._block is None or self._block.xid != xid):
                raise frames.error(at, f"the Prepare of transaction {xid} after its Begin Prepare", "another one")
            if xid not in self._kept or xid in self._prepared:
                raise frames.error(at, f"the blocks of transaction {xid} before its Stream Prepare", "none")
            self._prepared.add(xid)
            self._block = None

    def _commit_prepared(self, frames: KeptFrames, at: int) -> Iterator[Segment]:
        _, flags, commit_lsn, end_lsn, time, xid = frames.unpacked(at, _DECISION_BODY, "Commit Prepared", has_gid=True)
        if xid not in self._prepared:
            raise frames.error(at, f"the content of prepared transaction {xid} before its Commit Prepared", "none")
        yield from self._passed_on(xid, Ending(frames.header(at), flags, commit_lsn, end_lsn, time), by_blocks=False)

    def _passed_on(self, xid: int, end: Ending, *, by_blocks: bool) -> Iterator[Segment]:
        kept = self._kept.pop(xid)
        self._prepared.discard(xid)
        if kept.is_empty:  # protocol version 1 does not mention such a transaction
            kept.messages.close()
            return
        yield from self._relations.before(kept)
        yield from kept.committed(end)
        self._relations.note_passed(kept, by_blocks=by_blocks)

    def _begin(self, xid: int, *, has_xids: bool) -> None:
        self._forget(xid)
        self._kept[xid] = KeptTransaction(xid, HeldSegments(self._folder, self._memory_bytes), has_xids)

    def _forget(self, xid: int) -> None:
        kept = self._kept.pop(xid, None)
        self._prepared.discard(xid)
        if kept is not None:
            kept.messages.close()

    def _spill(self) -> None:
        """Write the largest transactions to their files until the others fit into memory."""
        while sum(kept.messages.bytes_in_memory for kept in self._kept.values()) > self._memory_bytes:
            max((kept.messages for kept in self._kept.values()), key=lambda each: each.bytes_in_memory).spill()
