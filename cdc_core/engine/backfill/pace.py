"""When the next attempt to read rows of an incremental snapshot is due, after one that failed for now."""

from __future__ import annotations

import time

RETRY_SECONDS = 1.0


class Pace:
    """The pace of one run."""

    def __init__(self) -> None:
        self._retry_at = float("-inf")

    @property
    def may_try(self) -> bool:
        """Whether something may be read."""
        return time.monotonic() >= self._retry_at

    def wait(self) -> None:
        """Read nothing for a moment."""
        self._retry_at = time.monotonic() + RETRY_SECONDS
