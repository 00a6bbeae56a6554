"""What a process remembers of the runs that it works for, so that a task does not prepare again what the last one did.

A Python worker lives longer than a task, and may serve several connectors alternately, and several runs of one
connector one after the other. What it remembers of one run may be wrong for the next one of the same connector, for
which tables may have been removed and created again in between: it is forgotten as a whole when a task of that run
begins. What it remembers of another connector's run is set aside meanwhile.
"""

from __future__ import annotations

import threading
import uuid
import zlib
from collections import OrderedDict
from typing import Any

# Connectors of which a process remembers something; more of them prepare again what they need.
_MOST_CONNECTORS = 32
_DIGITS = 8


def new_run(connector: str) -> str:
    """Return an id for a new run of the connector that ``connector`` names (lake and topic.prefix): 32 hex digits.

    The first eight are those of the connector.
    """
    return f"{zlib.crc32(connector.encode()):08x}{uuid.uuid4().hex[_DIGITS:]}"


class WorkerMemory:
    """Dictionaries, each of the module that created it, which change together. Any thread may use it."""

    def __init__(self) -> None:
        self._parts: list[dict[Any, Any]] = []
        self._run = ""
        # By connector: the run and the content of its parts. Not of the present one.
        self._aside: OrderedDict[str, tuple[str, list[dict[Any, Any]]]] = OrderedDict()
        self._lock = threading.Lock()

    def part(self) -> dict[Any, Any]:
        """Return a new dictionary, which has the entries of one run at a time."""
        made: dict[Any, Any] = {}
        self._parts.append(made)
        return made

    def serve(self, run: str) -> None:
        """Begin to work for a run (``new_run``): an earlier one of its connector is forgotten."""
        if run == self._run:
            return
        with self._lock:
            known, contents = self._aside.pop(run[:_DIGITS], ("", []))
            if self._run and self._run[:_DIGITS] != run[:_DIGITS]:
                self._aside[self._run[:_DIGITS]] = (self._run, [dict(part) for part in self._parts])
                if len(self._aside) >= _MOST_CONNECTORS:
                    self._aside.popitem(last=False)
            for number, part in enumerate(self._parts):
                part.clear()
                if known == run and number < len(contents):
                    part.update(contents[number])
            self._run = run

    def serves(self, run: str) -> bool:
        """Whether the process works for this run."""
        return run == self._run


MEMORY = WorkerMemory()
"""The memory of this process."""
