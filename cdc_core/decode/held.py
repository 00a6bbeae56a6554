"""Keeps the messages of a transaction until its commit is received: in memory, and a large one in a file.

decoderbufs does not send the commit LSN in BEGIN, and every position starts with that LSN;
pgoutput sends transactions in progress with protocol version 2 (``pgoutput/in_progress``).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from cdc_core.decode.segment import Segment

_MEMORY_BYTES = 64 << 20


class HeldSegments:
    """Segments in the order in which they were added. ``folder`` is where the file is, None: the system's."""

    def __init__(self, folder: Path | None = None, memory_bytes: int = _MEMORY_BYTES) -> None:
        self._folder = folder
        self._most = memory_bytes
        self._memory: list[Segment] = []
        self._bytes = 0
        self._frames = 0
        self._file: IO[bytes] | None = None
        self._in_file: list[tuple[int, np.ndarray]] = []
        self._file_bytes = 0

    def __len__(self) -> int:
        return len(self._in_file) + len(self._memory)

    @property
    def frames(self) -> int:
        """The number of frames."""
        return self._frames

    @property
    def bytes_in_memory(self) -> int:
        """The number of bytes in memory."""
        return self._bytes

    @property
    def bytes_kept(self) -> int:
        """The size of everything, also in the file."""
        return self._bytes + self._file_bytes

    def add(self, segment: Segment) -> None:
        """Keep a segment; beyond the limit all kept ones are written to the file."""
        self._memory.append(segment)
        self._bytes += len(segment.buffer)
        self._frames += len(segment)
        if self._bytes > self._most:
            self.spill()

    def cut(self, frames: int) -> None:
        """Forget all frames but the first ``frames``."""
        surplus = self._frames - frames
        while surplus > 0 and self._memory:
            last = self._memory.pop()
            self._bytes -= len(last.buffer)
            if len(last) > surplus:
                self._memory.append(last.part(0, len(last) - surplus))
                self._bytes += len(self._memory[-1].buffer)
            surplus -= len(last)
        if surplus > 0 and self._file is not None:
            self._cut_file(self._file, surplus)
        self._frames = min(self._frames, frames)

    def _cut_file(self, file: IO[bytes], surplus: int) -> None:
        while surplus > 0 and self._in_file:
            size, ends = self._in_file.pop()
            self._file_bytes -= size
            left = ends[: max(0, len(ends) - surplus)]
            surplus -= len(ends)
            if len(left):
                self._in_file.append((int(left[-1]), left))
                self._file_bytes += int(left[-1])
        file.truncate(self._file_bytes)

    def take(self) -> Iterator[Segment]:
        """Return all segments, and forget them as they are returned: one at a time is in memory."""
        in_file, memory, file = self._in_file, self._memory, self._file
        self._forget()
        if file is not None:
            with file:
                file.seek(0)
                for size, ends in in_file:
                    yield Segment(file.read(size), ends)
        yield from memory

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.close()
        self._forget()

    def spill(self) -> None:
        """Write the bytes in memory to the file."""
        if self._file is None:
            # Unlinked at once, so that the kernel removes it when the process ends, however it ends.
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
        self._file.seek(self._file_bytes)
        for segment in self._memory:
            self._file.write(segment.buffer)
            self._in_file.append((len(segment.buffer), segment.ends))
        self._file_bytes += self._bytes
        self._memory, self._bytes = [], 0

    def _forget(self) -> None:
        self._memory, self._in_file, self._file = [], [], None
        self._bytes = self._file_bytes = self._frames = 0
