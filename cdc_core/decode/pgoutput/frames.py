"""The frames of a segment as arrays: each message's offsets, kind and LSN, with lengths and kinds checked."""

from __future__ import annotations

import numpy as np

from cdc_core.decode.byte_reader import ByteReader
from cdc_core.decode.segment import FRAME_HEADER, Segment
from cdc_core.errors import ProtocolError

BEGIN, COMMIT, ORIGIN = ord("B"), ord("C"), ord("O")
RELATION, TYPE, MESSAGE = ord("R"), ord("Y"), ord("M")
INSERT, UPDATE, DELETE, TRUNCATE = ord("I"), ord("U"), ord("D"), ord("T")
_XLOG_DATA = ord("w")

# Minimum length of a message of each kind, 0 for kinds that protocol version 1 does not have.
_MIN_LENGTH = np.zeros(256, dtype=np.int64)
for _kind, _length in {
    BEGIN: 21,
    COMMIT: 26,
    ORIGIN: 10,
    RELATION: 10,
    TYPE: 7,
    INSERT: 8,
    UPDATE: 8,
    DELETE: 8,
    TRUNCATE: 6,
    MESSAGE: 15,
}.items():
    _MIN_LENGTH[_kind] = _length


class Frames:
    """Arrays over the N frames of a segment.

    ``starts[N]``, ``ends[N]`` are the bounds of the messages (after the frame's header), ``kinds[N]`` are their ASCII
    codes, ``lsn[N]`` the WAL starts in the headers. Raises ProtocolError if a frame is not XLogData, too short for its
    message's fixed part, or of an unknown kind.
    """

    __slots__ = ("data", "ends", "kinds", "lsn", "reader", "starts")

    def __init__(self, segment: Segment) -> None:
        self.data = np.frombuffer(segment.buffer, dtype=np.uint8)
        self.ends = np.asarray(segment.ends, dtype=np.int64)
        self.reader = ByteReader(self.data)
        heads = np.concatenate([np.zeros(1, dtype=np.int64), self.ends[:-1]]) if len(self.ends) else self.ends
        self.starts = heads + FRAME_HEADER
        self.lsn = self.reader.i64(heads + 1)
        if len(self.ends):
            self._check_bounds(heads)
        self.kinds = self.reader.u8(self.starts)
        self._check_kinds()

    def __len__(self) -> int:
        return len(self.ends)

    def payload(self, index: int) -> memoryview:
        """The message of one frame, from its kind byte on."""
        return self.data[int(self.starts[index]) : int(self.ends[index])].data

    def require(self, good: np.ndarray, expected: str, found: str, at: np.ndarray | None = None) -> None:
        """Raise ProtocolError for the first false element of ``good``; ``at`` maps its elements to frames."""
        if good.all():
            return
        bad = int(np.argmin(good))
        frame = bad if at is None else int(at[bad])
        raise ProtocolError("", int(self.lsn[frame]), expected, found)

    def _check_bounds(self, heads: np.ndarray) -> None:
        if int(self.ends[-1]) > len(self.data):
            raise ProtocolError("", None, f"a segment of {int(self.ends[-1])} bytes", f"{len(self.data)}")
        long_enough = self.ends > self.starts
        if not long_enough.all():
            bad = int(np.argmin(long_enough))
            length = int(self.ends[bad] - heads[bad])
            lsn = int(self.lsn[bad]) if length >= FRAME_HEADER else None  # its header may be truncated too
            raise ProtocolError("", lsn, f"frames of more than {FRAME_HEADER} bytes", f"one of {length}")
        self.require(self.reader.u8(heads) == _XLOG_DATA, "an XLogData frame", "a frame of another kind")

    def _check_kinds(self) -> None:
        least = _MIN_LENGTH[self.kinds]
        if not least.all():
            bad = int(np.argmin(least != 0))
            kind = f"one of kind 0x{int(self.kinds[bad]):02X}"
            raise ProtocolError("", int(self.lsn[bad]), "a message of kind B, C, O, R, Y, I, U, D, T or M", kind)
        length = self.ends - self.starts
        if not (length >= least).all():
            bad = int(np.argmin(length >= least))
            expected = f"at least {int(least[bad])} bytes in a message of kind {chr(self.kinds[bad])}"
            raise ProtocolError("", int(self.lsn[bad]), expected, f"{int(length[bad])}")
