"""Channels that are polled for signals; signals of the source table are received in the stream."""

from __future__ import annotations

import fcntl
import logging
import os
import queue
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from cdc_core.snapshot.signals.parse import MalformedSignalError, Signal, read_line

_log = logging.getLogger(__name__)


class Channel(Protocol):
    """A source of signals that are not in the stream."""

    def take(self) -> list[Signal]:
        """Return the signals received since the last call."""

    def done(self) -> None:
        """The signals returned by ``take`` have been processed, and this is stored."""


class FileChannel:
    """A file of signals, one JSON object per line. Reading removes the lines; an incomplete last one stays.

    With ``holds`` the lines stay until ``done``: a run that is killed before that receives them again.
    """

    def __init__(
        self, path: Path, interval_ms: int, clock: Callable[[], float] = time.monotonic, *, holds: bool = False
    ) -> None:
        self._holds = holds
        self._held = 0
        self._path = path
        self._interval = interval_ms / 1000
        self._clock = clock
        self._due = clock()

    def take(self) -> list[Signal]:
        """Return new signals, none before the interval is over. Invalid lines are logged and left out."""
        if self._held or self._clock() < self._due:
            return []
        self._due = self._clock() + self._interval
        try:
            text = self._read()
        except FileNotFoundError:
            return []
        except OSError as error:
            _log.warning("The signal file %s cannot be read (%s); retrying.", self._path, error.strerror)
            return []
        signals = []
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                try:
                    signals.append(read_line(line))
                except MalformedSignalError as error:
                    _log.warning("Line %d of the signal file is skipped: %s.", number, error)
        return signals

    def done(self) -> None:
        """Remove the lines returned by ``take`` from the file."""
        if self._held:
            try:
                with self._path.open("r+b") as file:
                    fcntl.flock(file, fcntl.LOCK_EX)
                    _replace(file, file.read()[self._held :])
            except OSError as error:
                _log.warning("The signal file %s cannot be written (%s).", self._path, error.strerror)
            self._held = 0

    def _read(self) -> str:
        """Read the complete lines, with a lock on the file; without ``holds`` they are removed from it."""
        with self._path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            octets = file.read()
            end = octets.rfind(b"\n") + 1
            # A last line without a line end may be complete: it is if it ends like a JSON object.
            if octets[end:].strip().endswith(b"}"):
                end = len(octets)
            if self._holds:
                self._held = end
            elif end:
                _replace(file, octets[end:])
        return octets[:end].decode("utf-8", errors="replace")


def _replace(file: BinaryIO, octets: bytes) -> None:
    file.seek(0)
    file.write(octets)
    file.truncate()
    file.flush()
    os.fsync(file.fileno())


def append_signal(path: Path, line: str) -> None:
    """Append a line to a file of signals, which is created if it does not exist. Raises OSError."""
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    if not path.exists():
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(line.encode() + b"\n")


def withdraw_signal(path: Path, signal: str, *, only_look: bool = False) -> bool:
    """Overwrite the line of a signal, by its id, with blanks; returns whether it was there. Raises OSError.

    A reader that holds the lines before and after it finds them where they were. ``only_look``: the line stays.
    """
    try:
        file = path.open("r+b")
    except FileNotFoundError:
        return False
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        lines = file.read().splitlines(keepends=True)
        kept = [line if signal.encode() not in line else b" " * (len(line) - 1) + b"\n" for line in lines]
        if not only_look and kept != lines:
            _replace(file, b"".join(kept))
    return kept != lines


class Inbox:
    """Signals of this process, added by any thread."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Signal] = queue.SimpleQueue()

    def put(self, signal: Signal) -> None:
        """Add a signal; it is processed between two segments of the stream."""
        self._queue.put(signal)

    def take(self) -> list[Signal]:
        """Return the signals added since the last call."""
        signals = []
        while True:
            try:
                signals.append(self._queue.get_nowait())
            except queue.Empty:
                return signals

    def done(self) -> None:
        """Do nothing: signals are not kept after ``take``."""


class Forwarding:
    """A channel whose signals another processor gets, too: each destination of a run reads tables by itself."""

    def __init__(self, channel: Channel, other: Inbox) -> None:
        self._channel = channel
        self._other = other

    def take(self) -> list[Signal]:
        """Return new signals, and pass them on."""
        signals = self._channel.take()
        for signal in signals:
            self._other.put(signal)
        return signals

    def done(self) -> None:
        """Inform the channel."""
        self._channel.done()
