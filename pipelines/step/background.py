"""Work in a background thread, while the step's thread reports progress and can be cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import dagster as dg

Result = TypeVar("Result")

_TICK_SECONDS = 0.25
# Longer than a round; Dagster itself gives a cancelled run 180 s.
_STOP_SECONDS = 120.0


class BackgroundWork(Generic[Result]):
    """Runs ``work`` in a background thread. ``work`` gets a function that returns whether it should stop;
    ``on_stop`` is called when a stop is requested.

    The thread does not keep the process alive: if it does not stop in time it ends with the process, as in a crash.
    """

    def __init__(
        self, work: Callable[[Callable[[], bool]], Result], name: str, on_stop: Callable[[], None] | None = None
    ) -> None:
        self._work = work
        self._name = name
        self._on_stop = on_stop
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._result: list[Result] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def stop(self) -> bool:
        """Ask the work to stop. Returns True the first time."""
        is_first = not self._stop.is_set()
        self._stop.set()
        if is_first and self._on_stop is not None:
            self._on_stop()
        return is_first

    def run(self, tick: Callable[[], None], log: dg.DagsterLogManager, stop_seconds: float = _STOP_SECONDS) -> Result:
        """Run the work and call ``tick`` several times per second. Returns the result or raises the error of the work.

        After an interrupt or an error of ``tick`` the work has to stop and is waited for; then the error is raised.
        """
        self._thread.start()
        try:
            while not self._ended.wait(_TICK_SECONDS):
                tick()
        except BaseException:
            self.stop()
            if not self._ended.wait(stop_seconds):
                log.warning(f"{self._name} did not stop within {stop_seconds:.0f} s; it ends with its process.")
            elif self._error is not None:
                log.warning(f"{self._name} ended with an error: {type(self._error).__name__}: {self._error}")
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
