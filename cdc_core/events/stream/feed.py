"""Events in addition to a lake: a thread that also writes the segments of a run into a lake to another output.

The lake does not wait for it: segments wait in memory up to a bound (``SharedSegments``), and only then reading from
the slot pauses. If that lasts longer than the stall time-out, the run ends with an error. The slot is confirmed for
both: up to what the lake has recorded, or what the other output has made durable, whichever is less
(``ConfirmationGate``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from cdc_core.connector_threads import ConnectorThread
from cdc_core.errors import TransientError
from cdc_core.events.stream.segments import SharedSegments

_log = logging.getLogger(__name__)

_DRAIN_SECONDS = 30.0
_JOIN_SECONDS = 60.0
_NAP_SECONDS = 0.05


class EventFeed:
    """The thread. ``follow`` writes the segments until its argument, called often, returns True.

    The methods are for the thread of the run into the lake; ``check`` raises the thread's error.
    """

    def __init__(
        self, segments: SharedSegments, stall_seconds: float, follow: Callable[[Callable[[], bool]], None]
    ) -> None:
        self._segments = segments
        self._stall_seconds = stall_seconds
        self._follow = follow
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = ConnectorThread(target=self._guard, name="events", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def check(self) -> None:
        """Raise the thread's error, or one if reading has paused for too long."""
        if self._error is not None:
            raise self._error
        if self._segments.full_seconds > self._stall_seconds:
            raise TransientError(
                f"Kafka has not taken the changes of {self._stall_seconds:g} s, and {self._segments.waiting_bytes:,} "
                "bytes of them wait: nothing more can be read from the slot.",
                "Check the brokers; then run again. wal2lake.kafka.backlog.max.bytes limits the bytes that wait, "
                "wal2lake.kafka.stall.timeout.ms the time.",
            )

    @property
    def is_busy(self) -> bool:
        """Whether changes wait, or are not durable."""
        return not self._segments.is_settled

    def drain(self) -> bool:
        """Wait, for a bounded time, until everything is durable; returns whether it is."""
        deadline = time.monotonic() + _DRAIN_SECONDS
        while not self._segments.is_settled and time.monotonic() < deadline:
            self.check()
            time.sleep(_NAP_SECONDS)
        if not self._segments.is_settled:
            _log.warning("Kafka has not taken all changes at the end of the run; the next run sends the others.")
        return self._segments.is_settled

    def close(self) -> None:
        """End the thread; the next run repeats what is not durable."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_SECONDS)

    def _guard(self) -> None:
        try:
            self._follow(self._stop.is_set)
        except BaseException as error:
            self._error = error


class ConfirmationGate:
    """Confirms to the slot what both destinations have. ``send`` hands an LSN to the connection."""

    def __init__(self, segments: SharedSegments, send: Callable[[int], None]) -> None:
        self._segments = segments
        self._send = send
        self._wanted = 0
        self._sent = 0

    def confirm(self, lsn: int) -> None:
        """The lake has everything up to ``lsn``, and has recorded that."""
        self._wanted = max(self._wanted, lsn)
        self.tick()

    def tick(self) -> None:
        """Send what both have by now."""
        reach = self._segments.reach(self._wanted)
        if reach > self._sent:
            self._sent = reach
            self._send(reach)
