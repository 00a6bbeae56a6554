"""Interrupts a DuckDB statement that takes too much CPU time, such as a user's rule that joins ranges without an end.

The bound is CPU time of the process, not time that passes: a machine that is busy, or a process that was stopped and
continued, ends no statement that would have ended in time.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SECONDS, SECONDS_PER_ROW = 10.0, 1e-4
"""What a statement may take, and what it may take more for each row: a hundred times what rules take."""

_LOOK = 1.0


class TimeBound:
    """Bounds the statements of one connection, which executes one at a time; ``interrupt`` is the connection's."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._ends = float("inf")
        watch = threading.Thread(target=_watch, args=(weakref.ref(self), interrupt), name="rules", daemon=True)
        watch.start()

    @contextmanager
    def over(self, rows: int) -> Iterator[None]:
        """Bound the statement that is executed and fetched inside; it reads so many rows, and those of ``extend``.

        One that takes longer raises duckdb.InterruptException.
        """
        with self._lock:
            self._ends = time.process_time() + SECONDS + rows * SECONDS_PER_ROW
        try:
            yield
        finally:
            with self._lock:
                self._ends = float("inf")

    def extend(self, rows: int) -> None:
        """Extend the statement's time for so many more rows that it has begun to read."""
        with self._lock:
            self._ends = time.process_time() + SECONDS + rows * SECONDS_PER_ROW

    def interrupt_late(self, interrupt: Callable[[], None]) -> None:
        """Interrupt the statement if its time is over."""
        with self._lock:  # so that it is not the next statement that is interrupted
            if time.process_time() > self._ends:
                interrupt()


def _watch(bound: weakref.ref[TimeBound], interrupt: Callable[[], None]) -> None:
    while True:
        time.sleep(_LOOK)
        time_bound = bound()
        if time_bound is None:
            return
        time_bound.interrupt_late(interrupt)
        del time_bound
