"""What a stream reports to the server: standby status updates, their positions, and when one is due.

In a status update, *flushed* and *applied* are the LSN confirmed by the caller, so the server removes no WAL before it;
*written* is the LSN received, which is for information only. Before the first confirmation, nothing is confirmed to the
server.

While the stream is idle, each end of WAL that the server sends is confirmed without the caller, so that an idle table
retains no WAL (``_confirm_silence``).
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable

from cdc_core.clock import postgres_now_us
from cdc_core.postgres.options import LsnFlushMode, PostgresOptions

_STATUS = struct.Struct("!cQQQqB")  # kind, written, flushed, applied, clock, reply requested
_MAX_SECONDS = 10.0

# Queues a message on the connection; returns 0 if the connection did not accept it: a later one replaces it.
Send = Callable[[bytes], int]


class StandbyStatus:
    """The positions of one stream that begins at ``start_lsn`` (0: where the slot is).

    ``timeout_ms``: the server's wal_sender_timeout, 0 for none. ``confirm`` and the properties are for any thread, all
    else for the one that reads the stream.
    """

    def __init__(self, options: PostgresOptions, start_lsn: int, timeout_ms: int) -> None:
        self._confirms_slot = options.lsn_flush_mode is not LsnFlushMode.MANUAL and options.flush_lsn_source
        self._seconds = _seconds_between(options, timeout_ms)
        self._lock = threading.Lock()
        self._confirmed = 0
        self._received = 0
        self._wal_end = int(start_lsn)
        self._is_idle = False
        self._silent_end = 0
        self._reported = 0
        self._reported_at = time.monotonic()

    @property
    def wal_end(self) -> int:
        """The LSN up to which the server has read its WAL for this stream, from its last message."""
        return self._wal_end

    @property
    def received(self) -> int:
        """WAL start of the last frame that had one; 0 before the first."""
        return self._received

    @property
    def confirmed(self) -> int:
        """The LSN of the next status update; 0 if nothing was confirmed."""
        return self._confirmed

    def confirm(self, lsn: int) -> None:
        """Record that every transaction that ends at or before ``lsn`` is durable. Never decreases."""
        with self._lock:
            self._confirmed = max(self._confirmed, int(lsn))

    def set_idle(self, is_idle: bool) -> None:
        """Record whether all frames returned so far are durable and no transaction among them is open."""
        with self._lock:
            self._is_idle = is_idle
            self._confirm_silence()

    def note_frames(self, wal_start: int, wal_end: int) -> None:
        """Record the header of the last of the frames that are about to be returned: nobody has made them durable."""
        self._received = max(self._received, wal_start)
        self._wal_end = max(self._wal_end, wal_end)
        with self._lock:
            self._is_idle = False

    def note_keepalive(self, wal_end: int, *, follows_frames: bool) -> None:
        """Record the end of WAL in a keepalive. ``follows_frames``: frames before it were not returned yet."""
        self._wal_end = max(self._wal_end, wal_end)
        with self._lock:
            self._silent_end = max(self._silent_end, wal_end)
            self._is_idle = self._is_idle and not follows_frames
            self._confirm_silence()

    def report(self, send: Send, *, wants_reply: bool = False) -> None:
        """Send a status update."""
        with self._lock:
            confirmed = self._confirmed if self._confirms_slot else 0
            written = max(self._received, self._confirmed, self._wal_end)
        if send(_STATUS.pack(b"r", written, confirmed, confirmed, postgres_now_us(), wants_reply)):
            self._reported = confirmed
            self._reported_at = time.monotonic()

    def report_if_due(self, send: Send) -> None:
        """Send a status update if its time has come or the confirmed position has advanced."""
        if time.monotonic() - self._reported_at >= self._seconds:
            # A reply is requested, so that a dead connection is detected and an idle server still sends its end of WAL.
            self.report(send, wants_reply=True)
        elif self._confirms_slot and self._confirmed > self._reported:
            self.report(send)

    def _confirm_silence(self) -> None:
        """While idle, confirm the last end of WAL that a keepalive sent; the caller holds the lock.

        It lies after every frame before it, and these are durable; each later frame belongs to a transaction that ends
        after it. So an end that was sent before the stream became idle is confirmed, too.
        """
        if self._is_idle:
            self._confirmed = max(self._confirmed, self._silent_end)


def _seconds_between(options: PostgresOptions, timeout_ms: int) -> float:
    """Return the seconds between two status updates: as configured, but well below the server's time-out."""
    wanted = min(_MAX_SECONDS, options.status_update_interval_ms / 1000)
    return min(wanted, timeout_ms / 3000) if timeout_ms else wanted
