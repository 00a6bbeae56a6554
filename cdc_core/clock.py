"""Epochs, units and the current time, which tests can replace."""

from __future__ import annotations

import time

# 2000-01-01T00:00:00Z, PostgreSQL's epoch, in units since the Unix epoch.
POSTGRES_EPOCH_S = 946_684_800
POSTGRES_EPOCH_US = POSTGRES_EPOCH_S * 1_000_000
DAY_US = 86_400_000_000


def now_ns() -> int:
    """Nanoseconds since 1970-01-01T00:00:00Z."""
    return time.time_ns()


def now_us() -> int:
    """Microseconds since 1970-01-01T00:00:00Z."""
    return time.time_ns() // 1_000


def postgres_now_us() -> int:
    """Return microseconds since 2000-01-01T00:00:00Z, as in the replication protocol."""
    return now_us() - POSTGRES_EPOCH_US
