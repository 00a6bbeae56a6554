"""What a process remembers of the run that it works for, so that a task does not prepare again what the last one did.

A Python worker lives longer than a task, and may serve several runs one after the other. What it remembers of one may
be wrong for the next, for which tables may have been removed and created again in between: it is forgotten as a whole
when a task of another run begins.
"""

from __future__ import annotations

import threading
from typing import Any


class WorkerMemory:
    """Dictionaries, each of the module that created it, which are cleared together. Any thread may use it."""

    def __init__(self) -> None:
        self._parts: list[dict[Any, Any]] = []
        self._run = ""
        self._lock = threading.Lock()

    def part(self) -> dict[Any, Any]:
        """Return a new dictionary, which is cleared when a run is forgotten."""
        made: dict[Any, Any] = {}
        self._parts.append(made)
        return made

    def serve(self, run: str) -> None:
        """Begin to work for a run: another one is forgotten."""
        with self._lock:
            if run != self._run:
                self.forget(self._run)
                self._run = run

    def serves(self, run: str) -> bool:
        """Whether the process works for this run."""
        return run == self._run

    def forget(self, run: str) -> None:
        """Forget what is remembered of a run; nothing if the process works for another one."""
        if run == self._run:
            for part in self._parts:
                part.clear()


MEMORY = WorkerMemory()
"""The memory of this process."""
