"""The output file of records, and a position file with the length up to which it is complete.

Records are written when they are received, the first records of a transaction before its Commit. The process may be
killed at any time, and the server then sends everything again that was not confirmed. So after each Commit
``<output>.position`` is replaced; it contains the number of bytes up to the Commit and its LSN. The next run truncates
the output to this length and continues from that LSN: no record is lost or duplicated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from cdc_core.lsn import Lsn

_NOWHERE = Lsn(0)


@dataclass(frozen=True, slots=True)
class Position:
    """``lsn``: LSN up to which the stream is in the file, 0 if streaming has not begun. ``in_snapshot``: a snapshot has
    begun and not ended; ``makes_slot``: the slot is created by this snapshot. ``progress``: progress of the snapshots
    requested by signals, as text (snapshot.incremental.progress).
    """

    lsn: Lsn = _NOWHERE
    in_snapshot: bool = False
    makes_slot: bool = False
    progress: str = ""


class EnvelopeOutput:
    """One output of one slot. ``open`` before writing; a context manager that closes it.

    A device (``/dev/stdout``) has no position file and is not truncated: what was written to it cannot be removed.
    """

    def __init__(self, path: Path, slot: str) -> None:
        self._path = path
        self._slot = slot
        self._beside = path.with_name(path.name + ".position")
        self._is_file = not path.exists() or path.is_file()
        self._file: BinaryIO | None = None
        self._marked = 0
        self._position = Position()

    @property
    def is_marked(self) -> bool:
        """Whether nothing was written since the last mark."""
        return self._file is None or not self._is_file or self._file.tell() == self._marked

    def open(self) -> Position:
        """Truncate the output to its complete part and return the position of that part."""
        found, size = self._read()
        self._position = found
        self._file = self._path.open("ab")
        if self._is_file and size is not None and self._file.tell() >= size:
            self._file.truncate(size)
            self._file.seek(0, os.SEEK_END)
        if self._is_file:
            self._marked = self._file.tell()
        return found

    def __enter__(self) -> EnvelopeOutput:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def write(self, lines: Sequence[str]) -> int:
        """Append lines; returns their number."""
        assert self._file is not None
        if lines:
            self._file.write("".join(f"{line}\n" for line in lines).encode())
        return len(lines)

    def finish(self, lines: Sequence[str]) -> None:
        """Append lines that are no records, at the end of a run.

        They remain when the next run continues, unless records of an open transaction are before them: those are
        removed then, for the server sends them again.
        """
        if not lines:
            return
        is_marked = self.is_marked
        self.write(lines)
        self.flush()
        if is_marked:
            self.mark(self._position)

    def flush(self) -> None:
        """Flush the file's buffer to the operating system."""
        assert self._file is not None
        self._file.flush()

    def mark(self, position: Position) -> None:
        """Store that everything written so far is complete; it is durable when this returns."""
        self.flush()
        self._position = position
        if not self._is_file or self._file is None:
            return
        os.fsync(self._file.fileno())
        self._marked = self._file.tell()
        text = json.dumps(
            {
                "slot": self._slot,
                "bytes": self._file.tell(),
                "lsn": str(position.lsn),
                "in_snapshot": position.in_snapshot,
                "makes_slot": position.makes_slot,
                "progress": position.progress,
            }
        )
        fresh = self._beside.with_name(self._beside.name + ".new")
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._beside)

    def _read(self) -> tuple[Position, int | None]:
        """Return the position stored by the last run and the output's length in bytes then.

        The start position and None if the position is of another slot, cannot be parsed, or a file no longer exists.
        """
        if not self._is_file or not self._beside.exists() or not self._path.exists():
            return Position(), None
        try:
            raw = json.loads(self._beside.read_text(encoding="utf-8"))
            progress = str(raw.get("progress", ""))
            position = Position(Lsn.parse(raw["lsn"]), bool(raw["in_snapshot"]), bool(raw["makes_slot"]), progress)
            size, slot = int(raw["bytes"]), raw["slot"]
        except (ValueError, KeyError, TypeError):
            return Position(), None
        return (position, size) if slot == self._slot else (Position(), None)
