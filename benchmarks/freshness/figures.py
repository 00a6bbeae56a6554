"""Arithmetic of the freshness benchmark: no server, no files.

Times are seconds since the epoch, LSNs are integers, ``inf`` seconds mean that a change was never seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Commit(NamedTuple):
    """A Delta commit of a lake table that says how far the table is merged."""

    time: float
    lsn: int
    version: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What a load wrote, one element for each (transaction, table) in the order of the commits."""

    time: Floats
    """When the transaction was about to commit."""
    lsn: Integers
    """End of the WAL right before its commit record was written: at or before the commit LSN."""
    table: Integers
    """Index of the table."""
    count: Integers
    """Changes of the transaction in this table."""


@dataclass(frozen=True, slots=True)
class Round:
    """The Delta commits of all tables that reached one LSN."""

    lsn: int
    first: float
    last: float
    tables: int


def first_visible(lsns: Integers, commits: Sequence[Commit]) -> Floats:
    """The time of the first of one table's ``commits`` (in Delta's order) that has reached each LSN; inf where none."""
    if not commits:
        return np.full(len(lsns), np.inf)
    reached = np.maximum.accumulate(np.array([commit.lsn for commit in commits], dtype=np.int64))
    times = np.array([commit.time for commit in commits] + [np.inf])
    found: Floats = times[np.searchsorted(reached, lsns, side="left")]
    return found


def freshness(changes: Changes, commits: Mapping[int, Sequence[Commit]]) -> Floats:
    """Seconds from commit to visibility of each element of ``changes``; ``commits`` by the table's index."""
    seen = np.full(len(changes.time), np.inf)
    for table in np.unique(changes.table):
        of_table = changes.table == table
        seen[of_table] = first_visible(changes.lsn[of_table], commits.get(int(table), ()))
    waited: Floats = seen - changes.time
    return waited


def percentile(values: Floats, share: float, weights: npt.ArrayLike | None = None) -> float:
    """The smallest value that at least ``share`` (0 to 1) of the weight lies at or below; NaN of nothing."""
    values = np.asarray(values, dtype=np.float64)
    weight = np.ones(len(values)) if weights is None else np.asarray(weights, dtype=np.float64)
    if not len(values) or weight.sum() <= 0:
        return float("nan")
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weight[order])
    # A relative slack keeps a share that is met exactly from being missed by rounding.
    place = int(np.searchsorted(sums, share * sums[-1] * (1 - 1e-12), side="left"))
    return float(values[order][min(place, len(values) - 1)])


def spread(values: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> dict[str, float]:
    """p50, p95 and max, and of how many; NaN of nothing."""
    found = np.asarray(values, dtype=np.float64)
    weight = np.ones(len(found)) if weights is None else np.asarray(weights, dtype=np.float64)
    return {
        "p50": percentile(found, 0.5, weight),
        "p95": percentile(found, 0.95, weight),
        "max": float(found.max()) if len(found) else float("nan"),
        "count": float(weight.sum()),
    }


def growth(changes: Changes, seconds: Floats, window: float) -> tuple[float, float]:
    """p95 of the changes committed in the first and in the last ``window`` seconds."""
    if not len(seconds):
        return float("nan"), float("nan")
    early = changes.time < changes.time[0] + window
    late = changes.time >= changes.time[-1] - window
    return (
        percentile(seconds[early], 0.95, changes.count[early]),
        percentile(seconds[late], 0.95, changes.count[late]),
    )


def since(changes: Changes, start: float) -> Changes:
    """The changes committed at or after ``start``."""
    kept = changes.time >= start
    return Changes(changes.time[kept], changes.lsn[kept], changes.table[kept], changes.count[kept])


def rounds(commits: Mapping[Any, Sequence[Commit]]) -> list[Round]:
    """The rounds, in the order of their LSNs: a round brings every table that has news to one LSN."""
    times: dict[int, list[float]] = {}
    for of_table in commits.values():
        # The first commit that reached an LSN shows it; a later one with the same LSN changed nothing.
        reached: set[int] = set()
        for commit in of_table:
            if commit.lsn not in reached:
                reached.add(commit.lsn)
                times.setdefault(commit.lsn, []).append(commit.time)
    return [Round(lsn, min(found), max(found), len(found)) for lsn, found in sorted(times.items())]


def held_seconds(times: Floats, wal_end: Floats, held_from: Floats) -> Floats:
    """How long before each sample the WAL ended where the held part begins: the age of the oldest byte that is held.

    ``times`` are those of the samples, the others bytes since LSN 0. A part that begins before the first sample counts
    from there. Between two samples the WAL is taken to grow evenly.
    """
    if not len(times):
        return np.empty(0)
    began = np.interp(held_from, wal_end, times)
    held: Floats = np.where(held_from >= wal_end, 0.0, times - began)
    return held


def used_between(times: Floats, used: Floats, start: float, end: float) -> float:
    """What a counter that only grows gained between two times, interpolated between its samples."""
    if not len(times):
        return float("nan")
    return float(np.interp(end, times, used) - np.interp(start, times, used))
