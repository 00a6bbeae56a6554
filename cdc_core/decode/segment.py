"""Segment: the output of the receive loop, the bytes received and the end of each frame."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

# A frame of the replication stream: 'w', WAL start, WAL end, server clock (three int64), then the plugin's message.
FRAME_HEADER = 25


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the replication stream, in order.

    ``buffer`` contains XLogData frames as received, concatenated; ``ends[i]`` (int64) is the offset at which frame i
    ends. Frame 0 starts at 0, frame i at ``ends[i - 1]``. Keepalives are not included. A segment may end between any
    two frames, also inside a transaction. The buffer must not change while the segment is in use.
    """

    buffer: bytes | bytearray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.ends)

    @classmethod
    def joined(cls, segments: list[Segment]) -> Segment:
        """Create one segment of several in order, at least one."""
        if len(segments) == 1:
            return segments[0]
        starts = np.cumsum([0, *(len(each.buffer) for each in segments[:-1])])
        ends = np.concatenate([each.ends + start for each, start in zip(segments, starts, strict=True)])
        return cls(b"".join(each.buffer for each in segments), ends)

    @classmethod
    def of(cls, frames: Iterable[bytes]) -> Segment:
        """Create a segment of complete frames."""
        parts = list(frames)
        lengths = np.fromiter((len(part) for part in parts), dtype=np.int64, count=len(parts))
        return cls(b"".join(parts), np.cumsum(lengths, dtype=np.int64))
