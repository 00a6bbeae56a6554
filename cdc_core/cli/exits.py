"""Exit codes, and the format of errors on a terminal."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cdc_core.errors import CdcError

DONE, FAILED, WRONG_USE = 0, 1, 2
_STOPPING = "Stopping after the current step. A second Ctrl-C stops at once."
_LEFT_SECONDS = 5.0


def describe(error: CdcError) -> str:
    """The error's message and, on a separate line, its remedy."""
    return f"{error.message}\n  → {error.remedy}" if error.remedy else error.message


@contextmanager
def stop_requests(*, acknowledged: bool = True) -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, so that a run ends between two steps. A second signal ends it at once.

    The first is ``acknowledged`` at once: a step may take long.
    """
    stop = threading.Event()

    def ask(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        if acknowledged:
            _acknowledge()

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _acknowledge() -> None:
    """Write to the descriptor: the signal may have come in the middle of a write to the stream."""
    from cdc_core.cli.logs import is_json

    line = json.dumps({"level": "info", "message": _STOPPING, "event": "stopping"}) if is_json() else _STOPPING
    # A terminal has just shown ^C.
    with suppress(OSError):
        os.write(2, f"{chr(10) if os.isatty(2) else ''}{line}\n".encode())


def leave_at_once() -> None:
    """Let this process end within seconds whatever its threads wait for, and without what they say of it."""
    threading.excepthook = lambda found: None
    sys.unraisablehook = lambda found: None

    def end() -> None:
        time.sleep(_LEFT_SECONDS)
        os._exit(FAILED)

    threading.Thread(target=end, daemon=True).start()
