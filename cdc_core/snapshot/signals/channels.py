"""Channels that are asked for signals from time to time; those of the source table come with the stream."""

from __future__ import annotations

import fcntl
import logging
import os
import queue
import time
from collections.abc import Callable
from pathlib import Path

from cdc_core.snapshot.signals.parse import MalformedSignalError, Signal, read_line

_log = logging.getLogger(__name__)


class FileChannel:
    """A file of signals, one JSON object a line. Reading takes the lines out of it; a half-written last one stays."""

    def __init__(self, path: Path, interval_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._interval = interval_ms / 1000
        self._clock = clock
        self._due = clock()

    def take(self) -> list[Signal]:
        """The signals that came, none before the interval is over. What cannot be read is reported and left out."""
        if self._clock() < self._due:
            return []
        self._due = self._clock() + self._interval
        try:
            text = self._cut()
        except FileNotFoundError:
            return []
        except OSError as error:
            _log.warning("The file of signal.file cannot be read (%s); it is tried again.", error.strerror)
            return []
        found = []
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                try:
                    found.append(read_line(line))
                except MalformedSignalError as error:
                    _log.warning("Line %d of the file of signal.file is left out: %s.", number, error)
        return found

    def _cut(self) -> str:
        """The whole lines, taken out of the file while no other process of ours writes to it."""
        with self._path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            octets = file.read()
            end = octets.rfind(b"\n") + 1
            # A last line without its end may be whole all the same: it is, once it can be read.
            if octets[end:].strip().endswith(b"}"):
                end = len(octets)
            if end:
                file.seek(0)
                file.write(octets[end:])
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
        return octets[:end].decode("utf-8", errors="replace")


def append_signal(path: Path, line: str) -> None:
    """Add a line to a file of signals, which is made where it is missing. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(line.encode() + b"\n")


class Inbox:
    """Signals of this very process, put in by any thread."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Signal] = queue.SimpleQueue()

    def put(self, signal: Signal) -> None:
        """Hand in a signal; it is acted on between two segments of the stream."""
        self._queue.put(signal)

    def take(self) -> list[Signal]:
        """What came since the last call."""
        found = []
        while True:
            try:
                found.append(self._queue.get_nowait())
            except queue.Empty:
                return found
