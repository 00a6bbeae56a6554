"""Bounded waiting: a test never sleeps for a fixed time and never waits for ever.

A bound is there to end a test that would wait for ever, not to measure: each is some times what a quiet machine needs,
and all are times ``PATIENCE``, because the tests have to pass beside a load of several times the machine's cores.

A condition may be looked at before what it looks at exists: a lake table, its new column, a row, a slot, a port. So a
look that fails because something is not there (``is_not_there``) is one that is not met, whatever the test is about. A
condition is true of the state that is waited for and of every later one: a state that may pass between two looks, or a
value that may be exceeded, is waited for in vain.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
_REST, _LONGEST_REST = 9.0, 1.0
PATIENCE = float(os.environ.get("WAL2LAKE_TEST_PATIENCE", "3"))

# Refused connections among the first, JSON that is written at the moment among the last.
_NOT_THERE = (FileNotFoundError, NotADirectoryError, ConnectionError, LookupError, ValueError)
# Of libraries that a test process may not have imported.
_OF_LIBRARIES = {
    "urllib.error": ("URLError",),
    "deltalake.exceptions": ("DeltaError",),
    "psycopg.errors": ("UndefinedTable", "UndefinedColumn", "UndefinedObject", "InvalidSchemaName"),
}


def patient(seconds: float) -> float:
    """A bound for what does not take ``wait_until``: the end of a process or a thread."""
    return seconds * PATIENCE


def is_not_there(error: Exception) -> bool:
    """Whether a look failed because of what may come to exist: a file, a table, a column, a row, whoever answers."""
    # delta-rs raises Exception itself where a data file is gone, as after VACUUM.
    return (
        isinstance(error, _NOT_THERE)
        or type(error) is Exception
        or any(
            isinstance(error, getattr(sys.modules[module], name))
            for module, names in _OF_LIBRARIES.items()
            if module in sys.modules
            for name in names
        )
    )


def unmet_by(error: type[Exception], condition: Callable[[], T]) -> Callable[[], T | None]:
    """The condition, not met while it raises ``error``: a busy web server's refusal, say."""

    def look() -> T | None:
        try:
            return condition()
        except error:
            return None

    return look


def wait_until(
    condition: Callable[[], T], seconds: float = 20.0, what: str = "the condition", pause: float = 0.02
) -> T:
    """Call ``condition`` until it returns something true; return that.

    Between two calls it rests for at least ``pause`` seconds, and longer the more a call computes: a condition that
    compares tables would take the processor from the run that it waits for. (One that itself waits computes nothing.)

    Raises AssertionError naming ``what`` when ``seconds`` times ``PATIENCE`` have passed, from the last look's error;
    what a condition raises that ``is_not_there`` does not know, at once.
    """
    seconds = patient(seconds)
    end = time.monotonic() + seconds
    while True:
        before, missing = time.process_time(), None
        try:
            value = condition()
        except Exception as error:
            if not is_not_there(error):
                raise
            missing = error
        else:
            if value:
                return value
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {seconds:g} s") from missing
        time.sleep(max(pause, min(_REST * (time.process_time() - before), _LONGEST_REST)))


@contextmanager
def repeated(work: Callable[[], object], pause: float) -> Iterator[None]:
    """Call ``work`` in another thread, each ``pause`` seconds, until the end of the context."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(pause):
            work()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(patient(30))
