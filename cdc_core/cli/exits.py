"""Exit codes, and the format of errors on a terminal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cdc_core.errors import CdcError

DONE, FAILED, WRONG_USE = 0, 1, 2


def describe(error: CdcError) -> str:
    """The error's message and, on a separate line, its remedy."""
    return f"{error.message}\n  → {error.remedy}" if error.remedy else error.message


@contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, so that a run ends between two steps. A second signal ends it at once."""
    stop = threading.Event()

    def ask(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
