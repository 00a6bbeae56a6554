"""Times the steps of a slice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from cdc_core.engine.slice.outcome import Timings


class Stopwatch:
    """Measures the parts of one slice, in one process."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._cpu_seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Add the seconds of the block to a part."""
        wall, cpu = time.monotonic(), time.process_time()
        try:
            yield
        finally:
            self._seconds[part] = self._seconds.get(part, 0.0) + time.monotonic() - wall
            self._cpu_seconds[part] = self._cpu_seconds.get(part, 0.0) + time.process_time() - cpu

    @property
    def timings(self) -> Timings:
        """What was measured so far."""
        return Timings(dict(self._seconds), dict(self._cpu_seconds))
