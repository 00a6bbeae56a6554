"""Bounded waiting: a test never sleeps for a fixed time and never waits for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T], seconds: float = 20.0, what: str = "the condition", pause: float = 0.02
) -> T:
    """Call ``condition`` until it returns something true; return that.

    Raises AssertionError naming ``what`` when ``seconds`` have passed.
    """
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {seconds:g} s")
        time.sleep(pause)
