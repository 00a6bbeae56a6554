"""Maintenance of tables during rounds: one task at a time, for a share of one core.

Rounds report due work and do not wait for it. A table waits in line once, however often it is reported, because a
task determines the due work when it runs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from cdc_core.connector_threads import ConnectorThread
from cdc_core.errors import CdcError
from cdc_core.lake.slice.upkeep import UpkeepDone, UpkeepOrder

SHARE = 0.25
"""Of the time of one core. Moving rows costs a core about a second for a million, and six or seven rows are moved for
each that is marked, so this is enough for tens of thousands of random updates a second."""

_CLOSE_SECONDS = 3.0
_END_SECONDS = 60.0

_log = logging.getLogger(__name__)


class Upkeep:
    """The maintenance of one run. ``work`` processes an order in a Spark task; it is called in this object's thread.

    All methods are for the thread of the rounds.
    """

    def __init__(self, work: Callable[[UpkeepOrder], UpkeepDone], share: float = SHARE) -> None:
        self._work = work
        self._share = share
        self._changed = threading.Condition()
        # What follows is used under the condition's lock.
        self._line: dict[UpkeepOrder, None] = {}
        self._held: frozenset[str] = frozenset()
        self._active: str | None = None
        self._closes_at: float | None = None
        self._thread: threading.Thread | None = None

    def request(self, orders: Iterable[UpkeepOrder]) -> None:
        """Add orders to the line."""
        with self._changed:
            self._line.update(dict.fromkeys(orders))
            if self._line and self._thread is None and self._closes_at is None:
                self._thread = ConnectorThread(target=self._run, name="upkeep", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    @contextmanager
    def leaving(self, paths: Iterable[str]) -> Iterator[None]:
        """Start no task for the tables at these paths in the block, which begins when none of them has one.

        For slices that take long to write: a commit made meanwhile would have them written again.
        """
        with self._changed:
            self._held = frozenset(paths)
            self._changed.wait_for(lambda: self._active not in self._held, _END_SECONDS)
        try:
            yield
        finally:
            with self._changed:
                self._held = frozenset()
                self._changed.notify_all()

    def close(self) -> None:
        """Process the queue, without pauses, for some seconds; the rest is due in a later run, too."""
        with self._changed:
            self._closes_at = time.monotonic() + _CLOSE_SECONDS
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        while (order := self._next()) is not None:
            began = time.monotonic()
            again = False
            try:
                again = self._work(order).has_more
            except CdcError as error:
                _log.warning("Maintenance of %s during the stream was skipped: %s", order.path, error)
            except Exception:
                # The thread must stay alive for other tables.
                _log.exception("Maintenance of %s during the stream failed unexpectedly.", order.path)
            with self._changed:
                self._active = None
                if again and self._closes_at is None:
                    self._line[order] = None
                self._changed.notify_all()
            self._pause((time.monotonic() - began) * (1 / self._share - 1))

    def _next(self) -> UpkeepOrder | None:
        """Wait for the next order; None at the end."""
        with self._changed:
            while True:
                order = next((order for order in self._line if order.path not in self._held), None)
                if self._closes_at is not None and (order is None or time.monotonic() >= self._closes_at):
                    return None
                if order is not None:
                    del self._line[order]
                    self._active = order.path
                    return order
                self._changed.wait()

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closes_at is not None, seconds)
