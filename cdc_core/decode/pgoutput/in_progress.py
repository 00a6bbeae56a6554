"""Translates a stream with transactions in progress (protocol version 2) to version 1.

With ``streaming`` the server sends a transaction that does not fit into its logical_decoding_work_mem while it is still
running: in blocks between those of other transactions, each row message with the id of its subtransaction. ::

    Stream Start 7 · Relation · Insert · Insert · Stream Stop · Begin 9 · Insert · Commit 9 ·
    Stream Start 7 · Update · Stream Stop · Stream Abort 7, subtransaction 8 · Stream Commit 7

The messages of such a transaction are kept, without the ids, as protocol version 1 would send them, and passed on at
its Stream Commit between a Begin and a Commit. So everything after this knows one protocol, in which transactions
follow one another in the order of their commits, and nothing of a transaction is passed on that may still be rolled
back.

A Stream Abort of a subtransaction removes all that was kept since its first message: subtransactions are nested, so all
of it belongs to the subtransaction or to those inside it. (The server writes the top-level id into logical messages, so
only this order determines their subtransaction.)

Confirming a position while a transaction is kept loses nothing: the server begins again with the first change of every
transaction that commits after the confirmed position. Hence ``is_open`` is always false, and what is kept is not needed
after the connection has ended.
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
_START_BODY = struct.Struct("!cIB")  # kind, transaction, first block of it
_COMMIT_BODY = struct.Struct("!cIBqqq")  # kind, transaction, flags, LSN of the commit, end LSN, time
_ABORT_BODY = struct.Struct("!cII")  # kind, transaction, subtransaction or the transaction itself

_IS_CONTROL = np.zeros(256, dtype=bool)
_IS_CONTROL[[_START, _STOP, _COMMIT, _ABORT]] = True
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
        self._block: KeptTransaction | None = None
        self._relations = RelationsInForce()

    def feed(self, segment: Segment) -> Iterator[Segment]:
        """Return what protocol version 1 would send up to here; ``Translator.feed``.

        Raises InProgressLimitError.
        """
        yield from grouped(self._translated(segment), _SEGMENT_BYTES)

    def close(self) -> None:
        """Discard the kept transactions."""
        for kept in self._kept.values():
            kept.messages.close()
        self._kept, self._block = {}, None

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
        if (self._block is not None) != (kind == _STOP):
            raise frames.error(at, "a Stream Stop at the end of each block", "another message")
        if kind == _START:
            self._start(frames, at)
        elif kind == _STOP:
            self._block = None
        elif kind == _ABORT:
            self._abort(frames, at)
        else:
            yield from self._commit(frames, at)

    def _start(self, frames: KeptFrames, at: int) -> None:
        _, xid, is_first = frames.unpacked(at, _START_BODY, "Stream Start")
        if is_first:
            self._forget(xid)
            self._kept[xid] = KeptTransaction(xid, HeldSegments(self._folder, self._memory_bytes), frames.header(at))
        if xid not in self._kept:
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
        kept = self._kept.pop(xid, None)
        if kept is None:
            raise frames.error(at, f"the blocks of transaction {xid} before its end", "none")
        if kept.is_empty:  # protocol version 1 does not mention such a transaction
            kept.messages.close()
            return
        yield from kept.committed(Ending(frames.header(at), flags, commit_lsn, end_lsn, time))
        self._relations.note_passed(kept)

    def _forget(self, xid: int) -> None:
        kept = self._kept.pop(xid, None)
        if kept is not None:
            kept.messages.close()

    def _spill(self) -> None:
        """Write the largest transactions to their files until the others fit into memory."""
        while sum(kept.messages.bytes_in_memory for kept in self._kept.values()) > self._memory_bytes:
            max((kept.messages for kept in self._kept.values()), key=lambda each: each.bytes_in_memory).spill()
