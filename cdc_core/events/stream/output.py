"""Where a run of events writes its records; and the output that is a file.

Beside the file is a position file with the length up to which it is complete. Records are written when they are
received, the first records of a transaction before its Commit. The process may be killed at any time, and the server
then sends everything again that was not confirmed. So after each Commit ``<output>.position`` is replaced; it contains
the number of bytes up to the Commit and its LSN. The next run truncates the output to this length and continues from
that LSN: no record is lost or duplicated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa

from cdc_core.engine import WaitingChanges
from cdc_core.lsn import Lsn

ROOM_SECONDS = 0.02
"""How often is asked whether an output has room."""

_NOWHERE = Lsn(0)


@dataclass(frozen=True, slots=True)
class Position:
    """``lsn``: LSN up to which the stream is in the file, 0 if streaming has not begun. ``in_snapshot``: a snapshot has
    begun and not ended; ``makes_slot``: the slot is created by this snapshot. ``progress``: progress of the snapshots
    requested by signals, as text (snapshot.incremental.progress). ``delivered``: what another connector has delivered
    after ``lsn``, as text (offsets.delivered). ``is_stored``: it was read from where an earlier run stored it.
    """

    lsn: Lsn = _NOWHERE
    in_snapshot: bool = False
    makes_slot: bool = False
    progress: str = ""
    delivered: str = ""
    is_stored: bool = field(default=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return it as values of JSON."""
        return {
            "lsn": str(self.lsn),
            "in_snapshot": self.in_snapshot,
            "makes_slot": self.makes_slot,
            "progress": self.progress,
            **({"delivered": self.delivered} if self.delivered else {}),
        }

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Position:
        """Return the position of ``to_dict``. Raises ValueError, KeyError or TypeError."""
        progress = str(raw.get("progress", ""))
        delivered = str(raw.get("delivered", ""))
        lsn, in_snapshot, makes_slot = Lsn.parse(raw["lsn"]), bool(raw["in_snapshot"]), bool(raw["makes_slot"])
        return cls(lsn, in_snapshot, makes_slot, progress, delivered, is_stored=True)


class Output(Protocol):
    """Where a run writes. For one thread; an output may have threads, whose errors any method raises."""

    @property
    def has_room(self) -> bool:
        """Whether more records may be written now without exceeding the bound of records in memory."""

    @property
    def waiting(self) -> WaitingChanges | None:
        """The records that are not durable, for any thread; None if none waits in this process."""

    @property
    def is_marked(self) -> bool:
        """Whether nothing was written since the last mark."""

    @property
    def durable_lsn(self) -> Lsn:
        """The LSN of the last mark that is durable: the slot may be confirmed up to it."""

    @property
    def is_settled(self) -> bool:
        """Whether all that was written is durable: then any later end of WAL may be confirmed."""

    def open(self) -> Position:
        """Return the position that the last run stored; records after it are removed, or repeated."""

    def write(self, records: pa.Table) -> int:
        """Write RECORDS; returns their number."""

    def flush(self) -> None:
        """Make written records visible to readers soon, if they may see them before the next mark."""

    def show_rows(self) -> None:
        """Rows of a snapshot were written: they may be shown to readers, at the position of the last mark."""

    def mark(self, position: Position) -> None:
        """Everything written so far is complete at this position: a later run continues after it. Durable later."""

    def settle(self, seconds: float | None = None) -> bool:
        """Wait until the last mark is durable; False if it is not after ``seconds``. Raises TransientError."""

    def finish(self, lines: Sequence[str]) -> None:
        """End a run. ``lines`` are those of the formats, which only a file has."""


class EnvelopeOutput:
    """One output of one slot. ``open`` before writing; a context manager that closes it. ``lines`` converts RECORDS.

    A device (``/dev/stdout``) has no position file and is not truncated: records written to it cannot be removed.
    """

    has_room = True
    waiting = None
    is_settled = True

    def __init__(self, path: Path, slot: str, lines: Callable[[pa.Table], list[str]]) -> None:
        self._lines = lines
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
        position, size = self._read()
        self._position = position
        self._file = self._path.open("ab")
        if self._is_file and size is not None and self._file.tell() >= size:
            self._file.truncate(size)
            self._file.seek(0, os.SEEK_END)
        if self._is_file:
            self._marked = self._file.tell()
        return position

    def __enter__(self) -> EnvelopeOutput:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def durable_lsn(self) -> Lsn:
        """The LSN of the last mark."""
        return self._position.lsn

    def settle(self, seconds: float | None = None) -> bool:
        """Return True: a mark is durable at once."""
        return True

    def write(self, records: pa.Table) -> int:
        """Append records as lines; returns their number."""
        return self._append(self._lines(records))

    def _append(self, lines: Sequence[str]) -> int:
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
        self._append(lines)
        self.flush()
        if is_marked:
            self.mark(self._position)

    def show_rows(self) -> None:
        """Do nothing: rows of an interrupted snapshot are removed."""

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
        text = json.dumps({"slot": self._slot, "bytes": self._file.tell(), **position.to_dict()})
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
            position = Position.of(raw)
            size, slot = int(raw["bytes"]), raw["slot"]
        except (ValueError, KeyError, TypeError):
            return Position(), None
        return (position, size) if slot == self._slot else (Position(), None)
