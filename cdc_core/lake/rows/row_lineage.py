"""Determines which key events belong to the same row of the source, across its key changes.

Within a slice, a row has a sequence of stays at keys. A stay begins with the row that the lake has at that key, with an
insert, or with the key change that moved the row there; it ends with the delete or key change that removed it. After
that another row is at the key, even if the change that wrote it is not in the slice (it is in quarantine). A key change
links the stay that it ended to the one that it began. The links are followed back to the first stay by pointer jumping,
in as many steps as the length of the longest chain has binary digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdc_core.arrays import Ints


@dataclass(frozen=True, slots=True)
class KeyEvents:
    """Every event at every key it touched, ordered by time; a key change first leaves the old key.

    ``key`` numbers the keys from 0, ``row`` the change rows. ``deleted``: the event removed the row. ``moved``: by a
    key change. ``begins``: it wrote a row where there was none. All of schema version [T].
    """

    key: np.ndarray
    row: np.ndarray
    deleted: np.ndarray
    moved: np.ndarray
    begins: np.ndarray

    @classmethod
    def of(cls, new: np.ndarray, old: np.ndarray, deletes: np.ndarray, updates: np.ndarray) -> KeyEvents:
        """Create the touches; ``new`` and ``old`` are the numbers of rows' keys, -1 for none. Shape: [N] each."""
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

    def last(self, keys: int) -> Ints:
        """Return the last key event of each key. Shape: int64[keys]."""
        out = np.full(keys, -1, dtype=np.int64)
        out[self.key] = np.arange(len(self.key))  # of equal indexes the last assignment is kept
        return out


def lineages(key_events: KeyEvents) -> Ints:
    """Return numbers that are equal for key events of the same row and different for other rows. Shape: int64[T]."""
    if not key_events.moved.any():
        return key_events.key
    order = np.argsort(key_events.key, kind="stable")
    key = key_events.key[order]
    first = key_events.begins[order]
    first[0] = True
    first[1:] |= (key[1:] != key[:-1]) | key_events.deleted[order][:-1]
    stay = np.empty(len(order), dtype=np.int64)
    stay[order] = np.cumsum(first) - 1
    up = np.arange(int(stay.max()) + 1)
    # A key change's two key events are adjacent in time: it ends one stay and begins the other.
    leaves = np.flatnonzero(key_events.moved & key_events.deleted)
    up[stay[leaves + 1]] = stay[leaves]
    while not np.array_equal(up, up[up]):
        up = up[up]
    return up[stay]


@dataclass(frozen=True, slots=True)
class KeyEventHistory:
    """The key events ordered by row and time, to find earlier key events of the same row."""

    order: np.ndarray
    starts: np.ndarray
    at: np.ndarray

    @classmethod
    def of(cls, lineage: np.ndarray, asked: np.ndarray) -> KeyEventHistory:
        """Create the history; ``lineage``: see ``lineages``; ``asked``: where to start. Shape: [T], int64[A]."""
        order = np.argsort(lineage, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        sorted_lineage = lineage[order]
        new = np.ones(len(order), dtype=bool)
        new[1:] = sorted_lineage[1:] != sorted_lineage[:-1]
        starts = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
        return cls(order, starts, place[asked])

    @property
    def first(self) -> Ints:
        """The first key event of the row of each key event in ``asked``. Shape: int64[A]."""
        return np.asarray(self.order[self.starts[self.at]])

    def latest(self, known: np.ndarray) -> Ints:
        """Return the row's latest ``known`` event up to that in ``asked``, -1 for none. Shape: bool[T] -> int64[A]."""
        places = np.where(known[self.order], np.arange(len(self.order)), -1)
        last = np.maximum.accumulate(places)[self.at]
        return np.where(last >= self.starts[self.at], self.order[np.maximum(last, 0)], -1)
