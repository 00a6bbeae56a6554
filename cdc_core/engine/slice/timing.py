"""Times the steps of a slice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from cdc_core.engine.slice.order import SliceOutcome


@contextmanager
def timed(outcome: SliceOutcome, part: str) -> Iterator[None]:
    """Add the seconds of the block to the outcome's ``part``."""
    wall, cpu = time.monotonic(), time.process_time()
    try:
        yield
    finally:
        outcome.seconds[part] = outcome.seconds.get(part, 0.0) + time.monotonic() - wall
        outcome.cpu_seconds[part] = outcome.cpu_seconds.get(part, 0.0) + time.process_time() - cpu
