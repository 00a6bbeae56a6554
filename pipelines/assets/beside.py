"""Work in a thread of its own, while the step's thread stays free to report, to look around and to be cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import dagster as dg

Result = TypeVar("Result")

_TICK_SECONDS = 0.25
# Longer than a round; Dagster itself gives a cancelled run 180 s.
_STOP_SECONDS = 120.0


class Beside(Generic[Result]):
    """Runs ``work`` beside the caller. ``work`` gets a function that tells whether it should end.

    The thread does not keep the process alive: one that does not end in time dies with it, as in a crash.
    """

    def __init__(self, work: Callable[[Callable[[], bool]], Result], name: str) -> None:
        self._work = work
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._result: list[Result] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def stop(self) -> bool:
        """Ask the work to end; True the first time."""
        is_first = not self._stop.is_set()
        self._stop.set()
        return is_first

    def run(self, tick: Callable[[], None], log: dg.DagsterLogManager, stop_seconds: float = _STOP_SECONDS) -> Result:
        """Do the work, calling ``tick`` some times a second; its result, or its error raised here.

        An interrupt or an error of ``tick`` asks the work to end, waits for that, and is raised then.
        """
        self._thread.start()
        try:
            while not self._ended.wait(_TICK_SECONDS):
                tick()
        except BaseException:
            self.stop()
            if not self._ended.wait(stop_seconds):
                log.warning(f"The stream did not end within {stop_seconds:.0f} s; it ends with its process.")
            elif self._error is not None:
                log.warning(f"The stream ended with an error: {type(self._error).__name__}: {self._error}")
            raise
        if self._error is not None:
            raise self._error
        return self._result[0]

    def _run(self) -> None:
        try:
            self._result.append(self._work(self._stop.is_set))
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()
