"""What can be told cheaply: a look at the slot, and a session that starts while something else is done."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import Any

from cdc_core.lsn import Lsn

_START_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class SlotNews:
    """A cheap look at the slot. ``has_changes``: WAL was written behind what is confirmed; None sides are unknown.

    ``is_claimed``: a run of ours is at work on it, on whatever machine.
    """

    slot_exists: bool
    slot_active: bool = False
    confirmed_lsn: Lsn | None = None
    wal_end_lsn: Lsn | None = None
    wal_status: str | None = None
    is_claimed: bool = False

    @property
    def lag_bytes(self) -> int | None:
        """WAL between what is confirmed and its end."""
        if self.confirmed_lsn is None or self.wal_end_lsn is None:
            return None
        return max(0, self.wal_end_lsn - self.confirmed_lsn)

    @property
    def has_changes(self) -> bool:
        """Whether there may be something to read. An idle server writes some WAL too: a few bytes are no reason."""
        return self.slot_exists and (self.lag_bytes or 0) > 0


def starting(start: Callable[[], Any]) -> Callable[[], Any]:
    """Run ``start`` in a thread of its own; the function returned waits for what it gives, some minutes at most."""
    started: Future[Any] = Future()

    def run() -> None:
        try:
            started.set_result(start())
        except BaseException as error:
            started.set_exception(error)

    Thread(target=run, name="spark-start", daemon=True).start()
    return lambda: started.result(_START_SECONDS)
