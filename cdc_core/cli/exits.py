"""Exit codes, and the format of errors on a terminal."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cdc_core.errors import CdcError

DONE, FAILED, WRONG_USE = 0, 1, 2
_LEFT_SECONDS = 5.0


def describe(error: CdcError) -> str:
    """The error's message and, on a separate line, its remedy."""
    return f"{error.message}\n  → {error.remedy}" if error.remedy else error.message


@contextmanager
def stop_requests(acknowledge: Callable[[], None] = lambda: None) -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, so that a run ends between two steps. A second signal ends it at once.

    ``acknowledge`` is called in the handler of the first: a step may take long.
    """
    stop = threading.Event()

    def ask(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        acknowledge()

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def leave_at_once() -> None:
    """End this process within seconds, whatever its threads wait for, without their output."""
    threading.excepthook = lambda found: None
    sys.unraisablehook = lambda found: None

    def end() -> None:
        time.sleep(_LEFT_SECONDS)
        os._exit(FAILED)

    threading.Thread(target=end, daemon=True).start()
