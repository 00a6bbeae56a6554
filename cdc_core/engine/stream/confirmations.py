"""Confirmations to the slot: each LSN is recorded in the lake before it is sent, at a bounded rate.

    round durable ──▶ wait for the turn ──▶ record in the lake ──▶ status message to the server

A record costs one Delta commit without a data file, so one is made at most each second, and every ten seconds when no
change has come for a minute. An LSN that was recorded before is sent at once. The slot is thus up to that long
behind what is durable, which costs nothing but WAL that the server keeps meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from cdc_core import failpoints
from cdc_core.lake import LastCommit, StreamLog
from cdc_core.lsn import Lsn

_BUSY_SECONDS, _IDLE_SECONDS = 1.0, 10.0
_IDLE_AFTER_SECONDS = 60.0


class Confirmations:
    """The confirmations of one run. For one thread. Without a ``log`` (no lake) everything is sent at once."""

    def __init__(self, send: Callable[[int], None], log: StreamLog | None = None) -> None:
        self._send = send
        self._log = log
        self._pending: int | None = None
        self._last: LastCommit | None = None
        self._recorded_at = float("-inf")
        self._changed_at = time.monotonic()

    def confirm(self, lsn: int, last: LastCommit | None = None) -> None:
        """Confirm an LSN up to which every change is durable, now or later; ``last`` is the last captured commit."""
        if last is not None:
            self._last, self._changed_at = last, time.monotonic()
        self._pending = lsn
        self.tick()

    def tick(self) -> None:
        """Send the due position. Raises CommitConflictError if another run has changed the record."""
        if self._pending is None:
            return
        now = time.monotonic()
        wait = _BUSY_SECONDS if now - self._changed_at < _IDLE_AFTER_SECONDS else _IDLE_SECONDS
        if self._is_recorded(self._pending) or now - self._recorded_at >= wait:
            self.flush()

    def flush(self) -> None:
        """Record and send the pending position."""
        lsn, self._pending = self._pending, None
        if lsn is None:
            return
        if self._log is not None and not self._is_recorded(lsn):
            self._log.confirm(Lsn(lsn), self._last)
            self._recorded_at = time.monotonic()
            self._last = None
            failpoints.hit(failpoints.AFTER_CONFIRM_RECORD)
        self._send(lsn)

    def _is_recorded(self, lsn: int) -> bool:
        known = None if self._log is None else self._log.known
        return self._log is None or (known is not None and lsn <= known.confirmed)
