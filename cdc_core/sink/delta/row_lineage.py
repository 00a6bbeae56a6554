"""Which touches of keys belong to one row of the source, across its key changes.

A row's life in a slice is a sequence of stays at keys. A stay begins with the row that the lake has at that key, with
an insert, or with the key change that brought the row there; it ends at the delete or key change that took it away.
After that another row is at the key, also where the change that brought it there is not here (it is in quarantine). A
key change links the stay it ended to the one it began. Following the links back to the first stay is pointer jumping,
in as many steps as the longest chain has binary digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Touches:
    """Every event at every key it touched, in the order of time; a key change first leaves, then arrives.

    ``key`` numbers the keys from 0, ``row`` the change rows. ``deleted``: the touch took the row away. ``moved``: by a
    key change. ``begins``: it put a row where none was. All of shape [T].
    """

    key: np.ndarray
    row: np.ndarray
    deleted: np.ndarray
    moved: np.ndarray
    begins: np.ndarray

    @classmethod
    def of(cls, new: np.ndarray, old: np.ndarray, deletes: np.ndarray, updates: np.ndarray) -> Touches:
        """``new`` and ``old`` are the numbers of each change row's keys, -1 where it has none. Shape: [N] each."""
        count = len(new)
        moves = updates & (old >= 0) & (old != new)
        key = np.where(deletes, old, new)
        row = np.arange(count)
        if not moves.any():
            return cls(key, row, deletes, moves, ~deletes & ~updates)
        left = np.flatnonzero(moves)
        order = np.argsort(np.concatenate([2 * row + 1, 2 * left]), kind="stable")
        every = np.concatenate([row, left])
        gone = np.concatenate([deletes, np.ones(len(left), dtype=bool)])[order]
        moved = np.concatenate([moves, np.ones(len(left), dtype=bool)])[order]
        begins = ~gone & (moved | ~updates[every[order]])
        return cls(np.concatenate([key, old[left]])[order], every[order], gone, moved, begins)

    def last(self, keys: int) -> np.ndarray:
        """The last touch of each key. Shape: int64[keys]."""
        out = np.full(keys, -1, dtype=np.int64)
        out[self.key] = np.arange(len(self.key))  # of equal places the last one stays
        return out


def lineages(touches: Touches) -> np.ndarray:
    """Numbers that are equal for the touches of one row and different for those of different rows. Shape: int64[T]."""
    if not touches.moved.any():
        return touches.key
    order = np.argsort(touches.key, kind="stable")
    key = touches.key[order]
    first = touches.begins[order]
    first[0] = True
    first[1:] |= (key[1:] != key[:-1]) | touches.deleted[order][:-1]
    stay = np.empty(len(order), dtype=np.int64)
    stay[order] = np.cumsum(first) - 1
    up = np.arange(int(stay.max()) + 1)
    # A key change's two touches are adjacent in time: it leaves the one stay and begins the other.
    leaves = np.flatnonzero(touches.moved & touches.deleted)
    up[stay[leaves + 1]] = stay[leaves]
    while not np.array_equal(up, up[up]):
        up = up[up]
    return up[stay]


@dataclass(frozen=True, slots=True)
class History:
    """The touches by row and time, for looking back from some of them."""

    order: np.ndarray
    starts: np.ndarray
    at: np.ndarray

    @classmethod
    def of(cls, lineage: np.ndarray, asked: np.ndarray) -> History:
        """``lineage`` as from ``lineages``, ``asked`` the touches to look back from. Shape: [T], int64[A]."""
        order = np.argsort(lineage, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        sorted_lineage = lineage[order]
        new = np.ones(len(order), dtype=bool)
        new[1:] = sorted_lineage[1:] != sorted_lineage[:-1]
        starts = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
        return cls(order, starts, place[asked])

    @property
    def first(self) -> np.ndarray:
        """The first touch of the row of each touch asked. Shape: int64[A]."""
        return np.asarray(self.order[self.starts[self.at]])

    def latest(self, known: np.ndarray) -> np.ndarray:
        """The row's latest touch up to the one asked that is ``known``, -1 for none. Shape: bool[T] -> int64[A]."""
        places = np.where(known[self.order], np.arange(len(self.order)), -1)
        found = np.maximum.accumulate(places)[self.at]
        return np.where(found >= self.starts[self.at], self.order[np.maximum(found, 0)], -1)
