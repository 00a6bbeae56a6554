"""When events arrive at a consumer: its clock against the commit time that the events have."""

from __future__ import annotations

import re
import threading
import time
from types import TracebackType
from typing import Any

import numpy as np

from benchmarks.freshness.figures import Floats

# The first is that of the source block: the commit. A topic's schema has the name without a number.
_COMMIT = re.compile(rb'"ts_us":(\d+)')
_JOIN_SECONDS = 20.0


class Arrivals:
    """Reads the topics of a prefix with isolation.level=read_committed, from their beginning. A context manager.

    The consumer is a thread of this process, as the broker and the source are on this machine: one clock.
    """

    def __init__(self, servers: str, prefix: str) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap.servers": servers,
            "group.id": "arrivals",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            # Topics are made by the run: a new one is found soon.
            "topic.metadata.refresh.interval.ms": "500",
            "fetch.wait.max.ms": "10",
            "log_level": "0",
        }
        self._pattern = f"^{re.escape(prefix)}[.].*"
        self._lock = threading.Lock()
        self._committed: list[float] = []
        self._arrived: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Arrivals:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(_JOIN_SECONDS)

    @property
    def count(self) -> int:
        """How many events have arrived."""
        with self._lock:
            return len(self._arrived)

    @property
    def newest(self) -> float:
        """The newest commit time, 0 before the first event."""
        with self._lock:
            return max(self._committed, default=0.0)

    def waited(self, start: float) -> Floats:
        """Seconds from commit to arrival of the events committed at or after ``start``."""
        with self._lock:
            committed, arrived = np.array(self._committed), np.array(self._arrived)
        found: Floats = (arrived - committed)[committed >= start]
        return found

    def _read(self) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(self._settings)
        try:
            consumer.subscribe([self._pattern])
            while not self._stop.is_set():
                messages = consumer.consume(500, timeout=0.02)
                now = time.time()
                found = [_COMMIT.search(one.value()) for one in messages if one.error() is None and one.value()]
                with self._lock:
                    for one in found:
                        if one is not None:
                            self._committed.append(int(one[1]) / 1e6)
                            self._arrived.append(now)
        finally:
            consumer.close()
