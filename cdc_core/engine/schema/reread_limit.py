"""Limits re-reads whose cause may recur with the next changes: a table that needs too many of them is paused."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from cdc_core.errors import CdcError, LockedError, OlderTransactionsError
from cdc_core.schema import TableId

_MOST, _SECONDS = 5, 3600.0


class RereadLimit:
    """Counts the re-reads of each table: at most _MOST within _SECONDS. Per run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._taken: dict[TableId, deque[float]] = {}

    def allows(self, table: TableId) -> bool:
        """Count a re-read of the table; False if there were too many."""
        taken = self._taken.setdefault(table, deque(maxlen=_MOST))
        now = self._clock()
        if len(taken) == _MOST and now - taken[0] < _SECONDS:
            return False
        taken.append(now)
        return True


def remedy_then_replay(error: CdcError, table: TableId) -> str:
    """Return the remedy for a table that is paused because it could not be re-read."""
    remedy = error.remedy or "Correct the cause."
    # Both commands read the table again and end its pause: one of them is enough.
    if "wal2lake replay" in remedy or "wal2lake snapshot" in remedy:
        return remedy
    return f"{remedy} Then run wal2lake replay with {table}."


def is_counted(error: CdcError) -> bool:
    """Whether a failed attempt to re-read counts: one that waits for other sessions is repeated without limit."""
    return not isinstance(error, OlderTransactionsError | LockedError)
