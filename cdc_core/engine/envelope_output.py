"""The file of records, and beside it a small one that says how far it is whole.

Records are written as they come, a transaction's first ones before its Commit. A process may die at any moment, and the
server sends again what was not confirmed. So after each Commit ``<output>.position`` is replaced: the bytes up to it
and its LSN. The next run cuts the output back to these bytes and reads on from that LSN: no record is lost or doubled.
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
    """``lsn``: up to where the stream is in the file, 0 where it has not begun. ``in_snapshot``: a snapshot has begun
    and not ended; ``makes_slot`` tells that the slot was to be made by it. ``progress``: how far the snapshots are that
    signals asked for, as text (snapshot.incremental.progress).
    """

    lsn: Lsn = _NOWHERE
    in_snapshot: bool = False
    makes_slot: bool = False
    progress: str = ""


class EnvelopeOutput:
    """One output of one slot. ``open`` before writing; a context manager that closes it.

    A device (``/dev/stdout``) is written to and nothing else: what it was given cannot be taken back.
    """

    def __init__(self, path: Path, slot: str) -> None:
        self._path = path
        self._slot = slot
        self._beside = path.with_name(path.name + ".position")
        self._is_file = not path.exists() or path.is_file()
        self._file: BinaryIO | None = None
        self._marked = 0

    @property
    def is_marked(self) -> bool:
        """Whether nothing was written since the last mark."""
        return self._file is None or not self._is_file or self._file.tell() == self._marked

    def open(self) -> Position:
        """Cut the output back to where it is whole, and say where that is."""
        found, size = self._read()
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
        """Add lines; how many."""
        assert self._file is not None
        if lines:
            self._file.write("".join(f"{line}\n" for line in lines).encode())
        return len(lines)

    def flush(self) -> None:
        """Hand everything to the system."""
        assert self._file is not None
        self._file.flush()

    def mark(self, position: Position) -> None:
        """Everything written so far is whole, and durable when this returns."""
        self.flush()
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
        """What the last run left, and how long the output was; nothing where it was of another slot or is gone."""
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
