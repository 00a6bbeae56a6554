"""How long a run is away after a fault: seconds from the fault's end to the first change that a reader sees.

    python -m benchmarks.macro.recovery [--times 5]

* ``restart``: the server stops (fast, and immediate) and starts; from the first connection that it accepts.
* ``kill``: SIGKILL to ``wal2lake run``, which is started again at once; from the signal.
* ``java``: SIGKILL to its Java process; from the signal.

Each time a change is made as soon as the server accepts it, and the lake table is read until it is there. Goals: 5 s
after a restart, 12 s after a kill.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import time
from collections.abc import Callable

import psycopg

from benchmarks.freshness.processes import descendants, processes
from benchmarks.freshness.product import Product, Site, made_site
from benchmarks.server import bench_server
from tests.support.lake import rows

_SECONDS, _PAUSE = 120.0, 0.05
_GOALS = {"fast restart": 5.0, "immediate restart": 5.0, "kill": 12.0, "java": 12.0}


class Marks:
    """Changes that are made one after the other, and looked for in the lake."""

    def __init__(self, site: Site) -> None:
        self._site, self._next = site, 1
        self._folder = site.table_folders()[0]

    def make(self) -> int:
        """Change one row; returns its mark."""
        self._next += 1
        self._site.cluster.execute(
            self._site.database, f"update {self._site.tables[0]} set amount = {self._next} where id = 1"
        )
        return self._next

    def await_shown(self, mark: int) -> float:
        """Wait until the lake shows it; returns the time (monotonic seconds)."""
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            try:
                found = rows(self._folder, "select amount from t where id = 1")
            except Exception:  # the table is not there yet
                found = []
            if found and int(found[0]["amount"]) >= mark:
                return time.monotonic()
            time.sleep(_PAUSE)
        raise TimeoutError(f"change {mark} was not in the lake within {_SECONDS:g} s")


def restarted(site: Site, marks: Marks, crash: bool) -> float:
    """Restart the server; the seconds from the first connection that it accepts."""
    site.cluster.restart(crash=crash)
    while True:
        try:
            begun = time.monotonic()
            mark = marks.make()
            break
        except psycopg.OperationalError:
            time.sleep(0.01)
    return marks.await_shown(mark) - begun


def killed(site: Site, marks: Marks, runs: list[Product]) -> float:
    """Kill the run and start it at once; the seconds from the signal."""
    begun = time.monotonic()
    os.kill(runs[-1].pid, signal.SIGKILL)
    runs.append(Product(site.config))
    mark = marks.make()
    return marks.await_shown(mark) - begun


def without_java(marks: Marks, runs: list[Product]) -> float:
    """Kill the Java process; the seconds from the signal."""
    everybody = processes()
    (java,) = [pid for pid in descendants(runs[-1].pid, everybody) if everybody[pid].name == "java"][:1]
    begun = time.monotonic()
    os.kill(java, signal.SIGKILL)
    return marks.await_shown(marks.make()) - begun


def main() -> int:
    """Measure and print; 1 if a median misses its goal."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--times", type=int, default=5)
    given = asked.parse_args()
    found: dict[str, list[float]] = {name: [] for name in _GOALS}
    with bench_server() as (cluster, folder), made_site(cluster, folder, "recovery", 1, 10_000) as site:
        marks, runs = Marks(site), [Product(site.config)]
        each: dict[str, Callable[[], float]] = {
            "fast restart": lambda: restarted(site, marks, False),
            "immediate restart": lambda: restarted(site, marks, True),
            "kill": lambda: killed(site, marks, runs),
            "java": lambda: without_java(marks, runs),
        }
        try:
            marks.await_shown(marks.make())
            for _ in range(given.times):
                for name, measure in each.items():
                    found[name].append(measure())
                    marks.await_shown(marks.make())
        finally:
            print(runs[-1].said())
            for run in runs:
                run.stop()
    for name, seconds in found.items():
        median, goal = statistics.median(seconds), _GOALS[name]
        print(f"{name:18} median {median:5.1f} s, most {max(seconds):5.1f} s, goal {goal:g} s")
    return int(any(statistics.median(seconds) > _GOALS[name] for name, seconds in found.items()))


if __name__ == "__main__":
    raise SystemExit(main())
