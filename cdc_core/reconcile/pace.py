"""The rate at which a comparison reads rows of the source."""

from __future__ import annotations

import time

_MOST_SLEEP = 1.0


class ReadPace:
    """Bounds the rows that are read in a second. ``rows_per_second`` is 0 for no limit. For one thread."""

    def __init__(self, rows_per_second: int) -> None:
        self.rows_per_second = rows_per_second
        self._free_at = time.monotonic()

    def spend(self, rows: int) -> None:
        """Wait until so many rows may have been read."""
        if not self.rows_per_second:
            return
        self._free_at = max(self._free_at, time.monotonic() - _MOST_SLEEP) + rows / self.rows_per_second
        while (left := self._free_at - time.monotonic()) > 0:
            time.sleep(min(left, _MOST_SLEEP))
