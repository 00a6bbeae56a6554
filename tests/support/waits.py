"""Bounded waiting: a test never sleeps for a fixed time and never waits for ever.

A bound is there to end a test that would wait for ever, not to measure: each is some times what a quiet machine needs,
and all are times ``PATIENCE``, because the tests have to pass beside a load of several times the machine's cores.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_REST, _LONGEST_REST = 4.0, 1.0
PATIENCE = float(os.environ.get("WAL2LAKE_TEST_PATIENCE", "3"))


def wait_until(
    condition: Callable[[], T], seconds: float = 20.0, what: str = "the condition", pause: float = 0.02
) -> T:
    """Call ``condition`` until it returns something true; return that.

    Between two calls it rests for at least ``pause`` seconds, and longer the more a call computes: a condition that
    compares tables would take the processor from the run that it waits for. (One that itself waits computes nothing.)

    Raises AssertionError naming ``what`` when ``seconds`` times ``PATIENCE`` have passed.
    """
    seconds *= PATIENCE
    end = time.monotonic() + seconds
    while True:
        before = time.process_time()
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {seconds:g} s")
        time.sleep(max(pause, min(_REST * (time.process_time() - before), _LONGEST_REST)))
