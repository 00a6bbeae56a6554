"""Translates a stream with transactions in progress (protocol version 2, ``streaming``) to protocol version 1.

The server sends a transaction that does not fit into its logical_decoding_work_mem while it is still running: in
blocks, between those of other transactions, each row message with the id of its subtransaction. ::

    Stream Start 7 · Relation · Insert · Insert · Stream Stop · Begin 9 · Insert · Commit 9 ·
    Stream Start 7 · Update · Stream Stop · Stream Abort 7, subtransaction 8 · Stream Commit 7

The blocks of a transaction are kept, without the ids, as protocol version 1 would send them, and passed on at its
Stream Commit between a Begin and a Commit. So everything after this knows one protocol, in which transactions follow
one another in the order of their commits, and nothing of a transaction is passed on that may still be rolled back.

A Stream Abort of a subtransaction removes all that was kept since its first message: subtransactions are nested, so all
of it belongs to the subtransaction or to those inside it. (The server writes the top-level id into logical messages, so
only this order says to which subtransaction they belong.)

Confirming a position between the blocks of a transaction loses nothing: the server begins again with the first change
of every transaction that commits after the confirmed position. Hence ``is_open`` is always false, and what is kept is
not needed after the connection has ended.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cdc_core.decode.byte_reader import ByteReader
from cdc_core.decode.gather import gather_binary
from cdc_core.decode.held import HeldSegments
from cdc_core.decode.pgoutput.frames import DELETE, INSERT, MESSAGE, ORIGIN, RELATION, TRUNCATE, TYPE, UPDATE
from cdc_core.decode.segment import FRAME_HEADER, Segment, grouped
from cdc_core.errors import InProgressLimitError, ProtocolError

_START, _STOP, _COMMIT, _ABORT = ord("S"), ord("E"), ord("c"), ord("A")
_START_BODY = struct.Struct("!cIB")  # kind, transaction, first block of it
_COMMIT_BODY = struct.Struct("!cIBqqq")  # kind, transaction, flags, LSN of the commit, end LSN, time
_ABORT_BODY = struct.Struct("!cII")  # kind, transaction, subtransaction or the transaction itself
_BEGIN = struct.Struct("!cqqI")  # kind, LSN of the commit, time, transaction

_IS_CONTROL = np.zeros(256, dtype=bool)
_IS_CONTROL[[_START, _STOP, _COMMIT, _ABORT]] = True
_IN_BLOCK = np.zeros(256, dtype=bool)
_IN_BLOCK[[ORIGIN, RELATION, TYPE, MESSAGE, INSERT, UPDATE, DELETE, TRUNCATE]] = True
_XID_BYTES = 4
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
        self._kept: dict[int, _Kept] = {}
        self._block: _Kept | None = None

    def feed(self, segment: Segment) -> Iterator[Segment]:
        """Return what protocol version 1 would send up to here; ``Translator.feed``.

        Raises InProgressLimitError.
        """
        yield from grouped(self._translated(segment), _SEGMENT_BYTES)

    def close(self) -> None:
        """Forget what is kept."""
        for kept in self._kept.values():
            kept.messages.close()
        self._kept, self._block = {}, None

    def _translated(self, segment: Segment) -> Iterator[Segment]:
        frames = _Frames(segment)
        controls = np.flatnonzero(_IS_CONTROL[frames.kinds])
        if self._block is None and not len(controls):
            yield segment
            return
        first = 0
        for control in controls.tolist():  # row-wise: twice for each block, once for each end
            yield from self._between(frames, first, control)
            yield from self._controlled(frames, control)
            first = control + 1
        yield from self._between(frames, first, len(segment))

    def _between(self, frames: _Frames, first: int, last: int) -> Iterator[Segment]:
        if first == last:
            return
        if self._block is None:
            yield frames.segment.part(first, last)
        else:
            self._block.add(frames, first, last)
            if sum(kept.messages.bytes_kept for kept in self._kept.values()) > self._max_bytes:
                raise InProgressLimitError(self._max_bytes)
            self._spill()

    def _controlled(self, frames: _Frames, at: int) -> Iterator[Segment]:
        kind = int(frames.kinds[at])
        if (kind == _STOP) != (self._block is not None):
            raise frames.error(at, "a Stream Stop at the end of each block", "another message")
        if kind == _START:
            self._start(frames, at)
        elif kind == _STOP:
            self._block = None
        elif kind == _ABORT:
            self._abort(frames, at)
        else:
            yield from self._commit(frames, at)

    def _start(self, frames: _Frames, at: int) -> None:
        _, xid, is_first = frames.unpacked(at, _START_BODY, "Stream Start")
        if is_first:
            self._forget(xid)
            self._kept[xid] = _Kept(xid, frames.header(at), HeldSegments(self._folder, self._memory_bytes))
        if xid not in self._kept:
            raise frames.error(at, f"the first block of transaction {xid} before the others", "none")
        self._block = self._kept[xid]

    def _abort(self, frames: _Frames, at: int) -> None:
        _, xid, ended = frames.unpacked(at, _ABORT_BODY, "Stream Abort")
        if ended == xid:
            self._forget(xid)
        elif xid in self._kept:
            self._kept[xid].cut(ended)

    def _commit(self, frames: _Frames, at: int) -> Iterator[Segment]:
        _, xid, flags, commit_lsn, end_lsn, time = frames.unpacked(at, _COMMIT_BODY, "Stream Commit")
        kept = self._kept.pop(xid, None)
        if kept is None:
            raise frames.error(at, f"the blocks of transaction {xid} before its end", "none")
        if kept.is_empty:  # protocol version 1 does not mention such a transaction
            kept.messages.close()
            return
        yield Segment.of([kept.header + _BEGIN.pack(b"B", commit_lsn, time, xid)])
        yield from kept.messages.take()
        yield Segment.of([frames.header(at) + struct.pack("!cBqqq", b"C", flags, commit_lsn, end_lsn, time)])

    def _forget(self, xid: int) -> None:
        kept = self._kept.pop(xid, None)
        if kept is not None:
            kept.messages.close()

    def _spill(self) -> None:
        """Write the largest transactions to their files until the others fit into memory."""
        while sum(kept.messages.bytes_in_memory for kept in self._kept.values()) > self._memory_bytes:
            max((kept.messages for kept in self._kept.values()), key=lambda each: each.bytes_in_memory).spill()


@dataclass(slots=True)
class _Kept:
    """A transaction that has not ended. ``header`` is the frame's header of its first block.

    ``begun`` maps each subtransaction to the number of messages kept before its first one. ``origins`` counts the
    messages that are no change.
    """

    xid: int
    header: bytes
    messages: HeldSegments
    begun: dict[int, int] = field(default_factory=dict)
    origins: int = 0

    @property
    def is_empty(self) -> bool:
        return self.messages.frames == self.origins

    def add(self, frames: _Frames, first: int, last: int) -> None:
        """Keep messages of a block."""
        has_xid = frames.kinds[first:last] != ORIGIN
        segment, xids = frames.without_xids(first, last, has_xid)
        inside = np.flatnonzero(has_xid & (xids != self.xid))
        if len(inside):
            found, at = np.unique(xids[inside], return_index=True)
            numbers = inside[at] + self.messages.frames
            for xid, number in zip(found.tolist(), numbers.tolist(), strict=True):  # row-wise: once a subtransaction
                self.begun.setdefault(xid, number)
        self.origins += int(np.count_nonzero(~has_xid))
        self.messages.add(segment)

    def cut(self, subtransaction: int) -> None:
        """Forget a subtransaction that was rolled back, and those inside it, which are named before it or with it."""
        begun = self.begun.pop(subtransaction, None)
        if begun is not None:
            self.messages.cut(begun)


class _Frames:
    """The frames of a segment: ``heads[N]`` to ``ends[N]``, their messages from ``starts[N]``, ``kinds[N]``."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.data = np.frombuffer(segment.buffer, dtype=np.uint8)
        self.ends = np.asarray(segment.ends, dtype=np.int64)
        self.heads = np.concatenate([np.zeros(1, dtype=np.int64), self.ends[:-1]]) if len(self.ends) else self.ends
        self.starts = self.heads + FRAME_HEADER
        self._reader = ByteReader(self.data)
        self.kinds = self._reader.u8(self.starts)
        self._require(self.ends > self.starts, 0, f"frames of more than {FRAME_HEADER} bytes", "a shorter one")

    def header(self, at: int) -> bytes:
        """The header of a frame."""
        return self.data[int(self.heads[at]) : int(self.starts[at])].tobytes()

    def unpacked(self, at: int, body: struct.Struct, name: str) -> tuple[int, ...]:
        """Return the fields of a message of fixed length."""
        message = self.data[int(self.starts[at]) : int(self.ends[at])].tobytes()
        if len(message) != body.size:
            raise self.error(at, f"{body.size} bytes in a {name}", f"{len(message)}")
        return body.unpack(message)

    def without_xids(self, first: int, last: int, has_xid: np.ndarray) -> tuple[Segment, np.ndarray]:
        """Return messages of a block as protocol version 1 sends them, and their transaction ids (int64[N])."""
        kinds, heads, starts, ends = (part[first:last] for part in (self.kinds, self.heads, self.starts, self.ends))
        self._require(_IN_BLOCK[kinds], first, "a message of kind O, R, Y, I, U, D, T or M in a block", "another kind")
        after = starts + 1 + np.where(has_xid, _XID_BYTES, 0)
        self._require(ends >= after, first, "a transaction id after the kind of a message in a block", "none")
        xids = self._reader.u32(starts + 1)
        # Of each frame what is before the id, and what is after it: a single copy of all.
        content = gather_binary(self.data, _in_turn(heads, after), _in_turn(starts + 1, ends)).buffers()[2]
        bounds = np.cumsum(ends - heads - (after - starts - 1))
        return Segment(content.slice(0, int(bounds[-1])).to_pybytes(), bounds), xids

    def error(self, at: int, expected: str, found: str) -> ProtocolError:
        """An error at a frame."""
        return ProtocolError("", int(self._reader.i64(self.heads[at : at + 1] + 1)[0]), expected, found)

    def _require(self, good: np.ndarray, first: int, expected: str, found: str) -> None:
        if not good.all():
            raise self.error(first + int(np.argmin(good)), expected, found)


def _in_turn(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    out = np.empty(2 * len(first), dtype=np.int64)
    out[0::2], out[1::2] = first, second
    return out
