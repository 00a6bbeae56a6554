"""Alerts of a run: conditions that last are posted once, and once more when they are over.

set ─▶ waits ``after_seconds`` ─▶ posted as failing ─▶ clear ─▶ posted as recovered
         └ clear: nothing is posted
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum

from cdc_core.connector_threads import ConnectorThread

_TICK_SECONDS = 1.0

Alert = dict[str, str]


class AlertEvent(StrEnum):
    """What an alert is about."""

    STREAM_DOWN = "stream_down"
    TABLE_PAUSED = "table_paused"
    QUARANTINE = "quarantine"
    SLOT_LAG = "slot_lag"


_OVER = {
    AlertEvent.STREAM_DOWN: "the stream is running again.",
    AlertEvent.TABLE_PAUSED: "it is merged again.",
    AlertEvent.QUARANTINE: "its quarantine is within the limit again.",
    AlertEvent.SLOT_LAG: "the slot is within the limit again.",
}


@dataclass(slots=True)
class _Lasting:
    text: str
    since: float
    is_posted: bool = False


class Alerts:
    """The conditions of one run. Any thread may call it; a thread of its own posts them by ``post``, until ``close``.

    ``post`` neither waits nor raises. ``name`` is the connector's.
    """

    def __init__(
        self,
        name: str,
        post: Callable[[Alert], None],
        after_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._post, self._after, self._clock = name, post, after_seconds, clock
        self._lock = threading.Lock()
        self._lasting: dict[tuple[AlertEvent, str], _Lasting] = {}
        self._closing = threading.Event()
        self._thread = ConnectorThread(target=self._watch, name="alerts", daemon=True)

    def begin(self) -> None:
        """Post conditions as they become due."""
        self._thread.start()

    def set(self, event: AlertEvent, text: str, table: str = "") -> None:
        """Record that the condition is met, of a table or of the run; ``text`` says why, without values or secrets."""
        with self._lock:
            lasting = self._lasting.setdefault((event, table), _Lasting(text, self._clock()))
            lasting.text = text

    def clear(self, event: AlertEvent, table: str = "") -> None:
        """Record that the condition is not met."""
        with self._lock:
            lasting = self._lasting.pop((event, table), None)
        if lasting is not None and lasting.is_posted:
            self._post(self._alert(event, table, "recovered", _OVER[event]))

    def only(self, event: AlertEvent, tables: Collection[str]) -> None:
        """Record that the condition is met by no other tables than these."""
        with self._lock:
            others = [table for kind, table in self._lasting if kind is event and table not in tables]
        for table in others:
            self.clear(event, table)

    def tick(self, *, all_of_them: bool = False) -> None:
        """Post the conditions that have lasted, or ``all_of_them``."""
        now = self._clock()
        with self._lock:
            due = [
                (key, lasting)
                for key, lasting in self._lasting.items()
                if not lasting.is_posted and (all_of_them or now - lasting.since >= self._after)
            ]
            for _, lasting in due:
                lasting.is_posted = True
        for (event, table), lasting in due:
            self._post(self._alert(event, table, "failing", lasting.text))

    def close(self) -> None:
        """Stop; a run that ends has nothing that lasts, except that it is down, which is posted now."""
        self._closing.set()
        with self._lock:
            self._lasting = {key: each for key, each in self._lasting.items() if key[0] is AlertEvent.STREAM_DOWN}
        self.tick(all_of_them=True)

    def _watch(self) -> None:
        while not self._closing.wait(_TICK_SECONDS):
            self.tick()

    def _alert(self, event: AlertEvent, table: str, state: str, text: str) -> Alert:
        subject = f"{self._name}: {table}: {text}" if table else f"{self._name}: {text}"
        alert = {"event": event.value, "state": state, "text": subject, "connector": self._name, "message": text}
        return {**alert, "table": table} if table else alert
