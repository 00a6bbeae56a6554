"""How long the server of a stream has sent nothing: also where nothing is read, because the reader has to wait.

The server replies to status messages, so an arriving byte is all that tells a busy server from a line that is dead. A
reader that waits cannot read on, for the memory is bounded, and what it waits for may be an answer on a connection that
is dead for the same reason. So meanwhile the bytes are counted that have arrived and are not read.
"""

from __future__ import annotations

import struct
import termios
import time
from fcntl import ioctl

from cdc_core.errors import UnreachableError

# With more than that unread the receiving window may be closed, and a living server cannot send.
_MOST_UNREAD = 4096
# The server ends a connection whose client is silent for wal_sender_timeout; this side allows it the same time, in
# which it is asked for a reply at least three times.
_LEAST_SECONDS, _MOST_SECONDS = 5.0, 300.0
# Upper bound added per poll: the process may have been stopped in between.
_LONGEST_SECONDS = 1.0


class Silence:
    """Of one connection, for the thread that reads it. ``seconds``: the silence after which it counts as lost."""

    def __init__(self, descriptor: int, seconds: float) -> None:
        self._descriptor, self._limit = descriptor, seconds
        self._silent = 0.0
        self._unread = -1
        self._looked_at = 0.0

    def ended(self) -> None:
        """Something was read."""
        self._silent, self._unread = 0.0, -1

    def lasts(self, seconds: float) -> None:
        """The reader has waited for some time, and nothing has arrived. Raises UnreachableError."""
        self._silent += seconds
        if self._silent > self._limit:
            raise UnreachableError(
                f"The server has sent nothing for {self._limit:g} s and did not reply to status updates.",
                "Check the network connection to the server; the stream resumes from the slot's position.",
            )

    def look(self) -> None:
        """Called again and again while nothing is read. Raises UnreachableError."""
        unread, now = _unread_bytes(self._descriptor), time.monotonic()
        passed, self._looked_at = now - self._looked_at, now
        if unread != self._unread or unread > _MOST_UNREAD:
            self._silent, self._unread = 0.0, unread
            return
        self.lasts(min(passed, _LONGEST_SECONDS))


def allowed_seconds(timeout_ms: int) -> float:
    """Return the silence that a server with this wal_sender_timeout (0: none) is allowed."""
    wanted = timeout_ms / 1000 or _MOST_SECONDS
    return max(_LEAST_SECONDS, min(wanted, _MOST_SECONDS))


def _unread_bytes(descriptor: int) -> int:
    (found,) = struct.unpack("i", ioctl(descriptor, termios.FIONREAD, bytes(4)))
    return int(found)
