"""Segment: the output of the receive loop, the bytes received and the end of each frame."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

# A frame of the replication stream begins with 'w', WAL start, WAL end, server clock; the plugin's message follows.
HEADER = struct.Struct("!cQQq")
FRAME_HEADER = HEADER.size


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

    def part(self, first: int, last: int) -> Segment:
        """Return the frames from ``first`` to before ``last``, as a copy of their bytes."""
        low, high = (int(self.ends[at - 1]) if at else 0 for at in (first, last))
        return Segment(bytes(memoryview(self.buffer)[low:high]), self.ends[first:last] - low)


def grouped(segments: Iterable[Segment], most_bytes: int) -> Iterator[Segment]:
    """Join small segments, so that none is sorted for a few rows."""
    kept: list[Segment] = []
    size = 0
    for segment in segments:
        if kept and size + len(segment.buffer) > most_bytes:
            yield Segment.joined(kept)
            kept, size = [], 0
        kept.append(segment)
        size += len(segment.buffer)
    if kept:
        yield Segment.joined(kept)
