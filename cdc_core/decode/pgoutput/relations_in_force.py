"""Relation messages where transactions are passed on later than they were sent.

The server announces a relation once, before its first rows. Relation messages in the blocks of a transaction in
progress are valid for that transaction only, until it commits: then the server takes what its blocks announced for
announced to all, unless a later message did. A kept transaction is passed on with its own, possibly older, messages: a
column list of the publication can change meanwhile. So what was sent and what was passed on are compared, and a
Relation message is passed on again before rows whose own it is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cdc_core.decode.pgoutput.frames import DELETE, INSERT, TRUNCATE, UPDATE
from cdc_core.decode.pgoutput.kept import KeptFrames, KeptTransaction
from cdc_core.decode.segment import FRAME_HEADER, Segment

_IS_ROW = np.zeros(256, dtype=bool)
_IS_ROW[[INSERT, UPDATE, DELETE]] = True
_TRUNCATED = 6  # the offset of the OIDs in a Truncate message
# A frame's header without LSN, as the server sends it before Relation messages.
_NO_LSN = b"w" + bytes(FRAME_HEADER - 1)


class RelationsInForce:
    """Which Relation message applies to rows, as they were sent and as they are passed on. Of one connection."""

    def __init__(self) -> None:
        self._number = 0
        self._sent: dict[int, tuple[int, bytes]] = {}
        self._passed: dict[int, bytes] = {}
        self._owed: set[int] = set()

    def note_kept(self, kept: KeptTransaction, frames: KeptFrames, first: int, last: int) -> None:
        """Note what the messages of a block announce."""
        for at in frames.announcing(first, last):
            message = frames.message(at)
            kept.announced[_oid(message, 5)] = self._numbered(message[:1] + message[5:])

    def passing(self, frames: KeptFrames, first: int, last: int) -> Iterator[Segment]:
        """Return messages outside of kept transactions, with the Relation messages before them that they lack."""
        announcing = frames.announcing(first, last)
        begun = first
        for at, oid in self._lacking(frames, first, last, announcing):
            if at > begun:
                yield frames.segment.part(begun, at)
            yield self._again(oid, self._sent[oid][1])
            begun = at
        for at in announcing:
            message = frames.message(at)
            oid = _oid(message, 1)
            self._sent[oid] = self._numbered(message)
            self._pass(oid, message)
        yield frames.segment if begun == 0 and last == len(frames) else frames.segment.part(begun, last)

    def note_passed(self, kept: KeptTransaction) -> None:
        """Note that a kept transaction was passed on, at its Stream Commit."""
        for oid, (number, message) in kept.announced.items():
            self._sent[oid] = max(self._sent.get(oid, (0, b"")), (number, message))
            self._pass(oid, message)

    def _lacking(self, frames: KeptFrames, first: int, last: int, announcing: list[int]) -> list[tuple[int, int]]:
        """Return where Relation messages are lacking, and of which OIDs, in stream order."""
        if not self._owed:
            return []
        announced: dict[int, int] = {}
        for at in announcing:
            announced.setdefault(_oid(frames.message(at), 1), at)
        used = _used(frames, first, last)
        return sorted((used[oid], oid) for oid in self._owed & used.keys() if used[oid] < announced.get(oid, last))

    def _again(self, oid: int, message: bytes) -> Segment:
        self._pass(oid, message)
        return Segment.of([_NO_LSN + message])

    def _pass(self, oid: int, message: bytes) -> None:
        self._passed[oid] = message
        self._compare(oid)

    def _compare(self, oid: int) -> None:
        if oid in self._sent and self._sent[oid][1] != self._passed.get(oid):
            self._owed.add(oid)
        else:
            self._owed.discard(oid)

    def _numbered(self, message: bytes) -> tuple[int, bytes]:
        self._number += 1
        return self._number, message


def _used(frames: KeptFrames, first: int, last: int) -> dict[int, int]:
    """Return the OIDs of the relations whose rows are changed or truncated, with the first frame of each."""
    kinds = frames.kinds[first:last]
    rows = first + np.flatnonzero(_IS_ROW[kinds])
    oids, at = np.unique(frames.reader.u32(frames.starts[rows] + 1), return_index=True)
    earliest = dict(zip(oids.tolist(), rows[at].tolist(), strict=True))
    for cut in (first + np.flatnonzero(kinds == TRUNCATE)).tolist():  # row-wise: truncates are rare
        message = frames.message(cut)
        for oid in np.frombuffer(message[_TRUNCATED : _TRUNCATED + (len(message) - _TRUNCATED) // 4 * 4], ">u4"):
            earliest[int(oid)] = min(cut, earliest.get(int(oid), cut))
    return earliest


def _oid(message: bytes, at: int) -> int:
    return int.from_bytes(message[at : at + 4])
