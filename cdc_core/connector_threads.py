"""Which connector a thread works for: log lines name it, and Spark's jobs are in its pool.

A process may run several connectors. An operation sets the name with ``of_connector``; a thread that is started by
``ConnectorThread`` or ``ConnectorThreadPool`` works for the connector of the thread that started it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any

_name: ContextVar[str] = ContextVar("connector", default="")


def current_connector() -> str:
    """Return the ``topic.prefix`` of the connector that this thread works for; empty if it works for none."""
    return _name.get()


@contextmanager
def of_connector(name: str) -> Iterator[None]:
    """Within this context the thread works for the connector ``name``."""
    token = _name.set(name)
    try:
        yield
    finally:
        _name.reset(token)


class ConnectorThread(threading.Thread):
    """A thread that works for the connector of its creator."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._creator = copy_context()

    def run(self) -> None:
        """Call the target."""
        self._creator.run(super().run)


class ConnectorThreadPool(ThreadPoolExecutor):
    """A pool whose threads work for the connector of the one who submits."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Schedule the call ``fn(*args, **kwargs)``."""
        return super().submit(copy_context().run, fn, *args, **kwargs)
