"""A clock that stands still until a test moves it."""

from __future__ import annotations


class Clock:
    """Seconds that pass only where the test says so, or where the code under test sleeps.

    Called, or by ``monotonic``, it returns ``now``; so it takes the place of ``time.monotonic`` and of ``time``.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    monotonic = __call__

    def sleep(self, seconds: float) -> None:
        self.now += seconds
