"""Which rows a lake table must have for the changes of a slice: the old row of each update and delete.

A slice has no change that the lake has already (position) or that the snapshot in force shows (visibility). So the
first event of the slice at a key tells what the lake has there: an insert, or an update that moves a row to the key,
says that there is no row; an update or delete of the row at the key says that there is one. The same is true after an
event of the slice that removed the row, a truncate included, but then the row cannot be in the lake.

What follows if such a row is absent is decided in ``lake/slice/absent_rows``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.lake.rows.images import column
from cdc_core.lake.rows.row_lineage import KeyEvents

_NONE = -1


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """The keys of a slice at which the lake must have a row.

    ``lsns``: the commit LSN of the change at each key that needs one, -1 if none does. ``lost``: the same of the first
    change that follows an event of the slice which removed the row, so that no row of the lake is the one. Shape: [K]
    each
    """

    lsns: np.ndarray
    lost: np.ndarray

    @classmethod
    def of(cls, key_events: KeyEvents, rows: pa.Table, truncates: np.ndarray, keys: int) -> ExpectedRows:
        """Return what the events, ordered by time, at the keys 0 to ``keys`` need.

        ``rows`` are their change rows; ``truncates`` are those that remove any row, and need none. Shape: [N] each
        """
        lsns, lost = (np.full(keys, _NONE, dtype=np.int64) for _ in range(2))
        if key_events.begins.all():  # only inserts
            return cls(lsns, lost)
        order = np.argsort(key_events.key, kind="stable")
        key, takes = key_events.key[order], ~(key_events.begins | truncates[key_events.row])[order]
        first = np.ones(len(order), dtype=bool)
        first[1:] = key[1:] != key[:-1]
        after_removal = ~first
        after_removal[1:] &= key_events.deleted[order][:-1]
        commits = column(rows, "__commit_lsn").to_numpy()
        for by_key, mask in ((lsns, first), (lost, after_removal)):
            # Reversed, so that of several assignments to a key its first event's is kept.
            at = np.flatnonzero(takes & mask & (key >= 0))[::-1]
            by_key[key[at]] = commits[key_events.row[order[at]]]
        return cls(lsns, lost)

    def absent(self, present: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the keys whose row is not ``present`` in the lake, and the LSNs of their changes.

        Shape: bool[K] -> int64[M] each
        """
        lsns = np.where(present | (self.lsns == _NONE), self.lost, self.lsns)
        numbers = np.flatnonzero(lsns != _NONE)
        return numbers, lsns[numbers]
