"""How much WAL a slot keeps back, asked of the server four times a second."""

from __future__ import annotations

import threading

import numpy as np
import psycopg

from benchmarks.freshness.figures import Floats, held_seconds, spread

_LOOK = """
    select extract(epoch from clock_timestamp())::float8, (pg_current_wal_lsn() - '0/0')::float8,
           (confirmed_flush_lsn - '0/0')::float8, (restart_lsn - '0/0')::float8
    from pg_replication_slots where slot_name = %s and confirmed_flush_lsn is not null
"""


class SlotWatch:
    """Looks in a thread of its own, from ``__enter__`` to ``__exit__``."""

    def __init__(self, conninfo: str, slot: str, interval: float = 0.25) -> None:
        self._conninfo, self._slot, self._interval = conninfo, slot, interval
        self._rows: list[tuple[float, ...]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slot-watch", daemon=True)

    def __enter__(self) -> SlotWatch:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def held(self, start: float, end: float) -> dict[str, object]:
        """WAL behind the slot's confirmed position between two times: how old its oldest part is, and megabytes.

        ``restart_seconds`` is the same for restart_lsn, which the server moves at its own pace (some 15 s).
        """
        found = np.array(list(self._rows)).reshape(-1, 4)
        times, wal_end, confirmed, restart = (np.ascontiguousarray(column) for column in found.T)
        during = (times >= start) & (times <= end)
        return {
            "seconds": spread(held_seconds(times, wal_end, confirmed)[during]),
            "megabytes": spread(np.maximum(0.0, wal_end - confirmed)[during] / 1e6),
            "restart_seconds": spread(held_seconds(times, wal_end, restart)[during]),
            "wal_bytes_a_second": _rate(times[during], wal_end[during]),
        }

    def _run(self) -> None:
        with psycopg.connect(self._conninfo, autocommit=True, connect_timeout=10) as connection:
            while not self._stop.is_set():
                self._rows += connection.execute(_LOOK, [self._slot]).fetchall()
                self._stop.wait(self._interval)


def _rate(times: Floats, wal_end: Floats) -> float:
    if len(times) < 2 or times[-1] <= times[0]:
        return float("nan")
    return float((wal_end[-1] - wal_end[0]) / (times[-1] - times[0]))
