"""When the next step of an incremental snapshot is due, so that the stream has most of the time while it is busy."""

from __future__ import annotations

import time

RETRY_SECONDS = 1.0
_BUSY_SECONDS = 2.0
# While the stream delivers many changes, writing rows takes at most 1/_SHARE of the time of the rounds' thread, but is
# delayed at most _MAX_WAIT_SECONDS.
_SHARE, _MAX_WAIT_SECONDS = 2, 5.0


class Pace:
    """The pace of one run."""

    def __init__(self) -> None:
        self._retry_at = self._turn_at = self._busy_until = float("-inf")

    @property
    def may_write(self) -> bool:
        """Whether rows may be written now."""
        now = time.monotonic()
        return now >= self._busy_until or now >= self._turn_at

    @property
    def may_try(self) -> bool:
        """Whether something may be read."""
        return time.monotonic() >= self._retry_at

    def wait(self) -> None:
        """Read nothing for a moment."""
        self._retry_at = time.monotonic() + RETRY_SECONDS

    def note_changes(self) -> None:
        """The stream has delivered changes."""
        self._busy_until = time.monotonic() + _BUSY_SECONDS

    def note_written(self, began: float) -> None:
        """Rows were written, or not, since ``began``."""
        ended = time.monotonic()
        self._turn_at = ended + min((_SHARE - 1) * (ended - began), _MAX_WAIT_SECONDS)
