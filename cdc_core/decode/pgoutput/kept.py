"""Transactions that are kept until they commit, as protocol version 1 would send them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from cdc_core.decode.byte_reader import ByteReader
from cdc_core.decode.gather import gather_binary
from cdc_core.decode.held import HeldSegments
from cdc_core.decode.pgoutput.frames import DELETE, INSERT, MESSAGE, ORIGIN, RELATION, TRUNCATE, TYPE, UPDATE
from cdc_core.decode.segment import FRAME_HEADER, Segment
from cdc_core.errors import ProtocolError

_IN_BLOCK = np.zeros(256, dtype=bool)
_IN_BLOCK[[ORIGIN, RELATION, TYPE, MESSAGE, INSERT, UPDATE, DELETE, TRUNCATE]] = True
_XID_BYTES = 4
_BEGIN = struct.Struct("!cqqI")  # kind, LSN of the commit, time, transaction
_COMMIT = struct.Struct("!cBqqq")  # kind, flags, LSN of the commit, end LSN, time


@dataclass(frozen=True, slots=True)
class Ending:
    """A commit: the header and the fields of its message. ``time_us`` is microseconds since 2000-01-01T00:00:00Z."""

    header: bytes
    flags: int
    commit_lsn: int
    end_lsn: int
    time_us: int


@dataclass(slots=True)
class KeptTransaction:
    """A transaction that has not committed.

    ``header`` is that of its first block's frame. ``begun`` maps each subtransaction to the number of messages kept
    before its first one. ``origins`` is the number of its origin messages, ``announced`` are its last Relation messages
    by OID, with the number of the announcement (``relations_in_force``).
    """

    xid: int
    messages: HeldSegments
    header: bytes
    begun: dict[int, int] = field(default_factory=dict)
    origins: int = 0
    announced: dict[int, tuple[int, bytes]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is no change: protocol version 1 does not mention such a transaction."""
        return self.messages.frames == self.origins

    def add(self, frames: KeptFrames, first: int, last: int) -> None:
        """Keep messages of the transaction."""
        is_origin = frames.kinds[first:last] == ORIGIN
        self.origins += int(np.count_nonzero(is_origin))
        segment, xids = frames.without_xids(first, last, ~is_origin)
        inside = np.flatnonzero(~is_origin & (xids != self.xid))
        if len(inside):
            distinct, at = np.unique(xids[inside], return_index=True)
            numbers = inside[at] + self.messages.frames
            for xid, number in zip(distinct.tolist(), numbers.tolist(), strict=True):  # row-wise: once a subtransaction
                self.begun.setdefault(xid, number)
        self.messages.add(segment)

    def cut(self, subtransaction: int) -> None:
        """Forget a subtransaction that was rolled back, and those inside it, which are named before it or with it."""
        begun = self.begun.pop(subtransaction, None)
        if begun is not None:
            self.messages.cut(begun)

    def committed(self, end: Ending) -> Iterator[Segment]:
        """Yield the messages between a Begin and a Commit, and release each after it was yielded."""
        yield Segment.of([self.header + _BEGIN.pack(b"B", end.commit_lsn, end.time_us, self.xid)])
        yield from self.messages.take()
        commit = _COMMIT.pack(b"C", end.flags, end.commit_lsn, end.end_lsn, end.time_us)
        yield Segment.of([end.header + commit])


class KeptFrames:
    """The frames of a segment: ``heads[N]`` to ``ends[N]``, their messages from ``starts[N]``, ``kinds[N]``."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.data = np.frombuffer(segment.buffer, dtype=np.uint8)
        self.ends = np.asarray(segment.ends, dtype=np.int64)
        self.heads = np.concatenate([np.zeros(1, dtype=np.int64), self.ends[:-1]]) if len(self.ends) else self.ends
        self.starts = self.heads + FRAME_HEADER
        self.reader = ByteReader(self.data)
        self.kinds = self.reader.u8(self.starts)
        self._require(self.ends > self.starts, 0, f"frames of more than {FRAME_HEADER} bytes", "a shorter one")

    def __len__(self) -> int:
        return len(self.ends)

    def header(self, at: int) -> bytes:
        """The header of a frame."""
        return self.data[int(self.heads[at]) : int(self.starts[at])].tobytes()

    def announcing(self, first: int, last: int) -> list[int]:
        """The Relation messages between two frames."""
        found: list[int] = (first + np.flatnonzero(self.kinds[first:last] == RELATION)).tolist()
        return found

    def message(self, at: int) -> bytes:
        """The message of a frame."""
        return self.data[int(self.starts[at]) : int(self.ends[at])].tobytes()

    def unpacked(self, at: int, body: struct.Struct, name: str) -> tuple[int, ...]:
        """Return the fields of a message of fixed length."""
        message = self.message(at)
        if len(message) != body.size:
            raise self.error(at, f"{body.size} bytes in a {name}", f"{len(message)}")
        return body.unpack_from(message)

    def without_xids(self, first: int, last: int, has_xid: np.ndarray) -> tuple[Segment, np.ndarray]:
        """Return messages of a block as protocol version 1 sends them, and their transaction ids (int64[N])."""
        known = _IN_BLOCK[self.kinds[first:last]]
        self._require(known, first, "a message of kind O, R, Y, I, U, D, T or M in a block", "another kind")
        heads, starts, ends = (part[first:last] for part in (self.heads, self.starts, self.ends))
        after = starts + 1 + np.where(has_xid, _XID_BYTES, 0)
        self._require(ends >= after, first, "a transaction id after the kind of a message in a block", "none")
        xids = self.reader.u32(starts + 1)
        # The bytes before and after the id of each frame, copied once for all frames.
        content = gather_binary(self.data, _in_turn(heads, after), _in_turn(starts + 1, ends)).buffers()[2]
        bounds = np.cumsum(ends - heads - (after - starts - 1))
        return Segment(content.slice(0, int(bounds[-1])).to_pybytes(), bounds), xids

    def error(self, at: int, expected: str, found: str) -> ProtocolError:
        """An error at a frame."""
        return ProtocolError("", int(self.reader.i64(self.heads[at : at + 1] + 1)[0]), expected, found)

    def _require(self, good: np.ndarray, first: int, expected: str, found: str) -> None:
        if not good.all():
            raise self.error(first + int(np.argmin(good)), expected, found)


def _in_turn(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    out = np.empty(2 * len(first), dtype=np.int64)
    out[0::2], out[1::2] = first, second
    return out
