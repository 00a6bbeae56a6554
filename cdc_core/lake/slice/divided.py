"""A slice that is too large for a part of a task's memory, and what each of several tasks merges of it.

Slices of inserts are divided by the changelog's files, so that data files keep the order of the source. All others are
divided by the hash of the key: a share has all changes of its keys, those in quarantine too, so what is decided about
them is what would be decided in the whole slice. Every task reads one version of the changelog and of the lake table.

A truncate of a table that keeps rows ends rows of other keys, too. These are divided by the lake's files, once the
shares have changed their own rows (``shares.EndOrder``).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from cdc_core.lake.rows.buckets import KeyShare
from cdc_core.lake.slice.order import Merge
from cdc_core.schema import TableId


@dataclass(frozen=True, slots=True)
class DividedSlice:
    """The changes of a changelog after the LSN ``merged`` up to the merge's, about ``parts`` times a part's memory.

    ``changelog_version`` and ``lake_version`` are those of the two tables, which every task reads. ``files`` are the
    changelog's files and their sizes in stream order if the slice is divided by them; empty if it is by keys.
    ``mark_above``: bytes of touched lake files above which rows are marked; None if they may not be.
    ``attempt`` counts from 1: others may change the lake table meanwhile.
    """

    merge: Merge
    merged: int
    changelog_version: int
    lake_version: int
    parts: int
    files: tuple[tuple[str, int], ...] = ()
    mark_above: int | None = None
    attempt: int = 1

    @property
    def table(self) -> TableId:
        """The table's name in the source."""
        return self.merge.table.id

    def shares(self, tasks: int) -> list[Share]:
        """Divide the slice among at most so many tasks, each with a part at least."""
        count = max(1, min(tasks, self.parts))
        if not self.files:
            return [Share(self, KeyShare(number, count)) for number in range(count)]
        sizes = np.cumsum([size for _, size in self.files])
        ends = np.flatnonzero(np.diff((sizes - 1) * count // max(1, sizes[-1]))) + 1
        bounds = [0, *ends.tolist(), len(self.files)]
        paths = [path for path, _ in self.files]
        return [
            Share(self, KeyShare(number, len(bounds) - 1), tuple(paths[low:high]))
            for number, (low, high) in enumerate(itertools.pairwise(bounds))
        ]


@dataclass(frozen=True, slots=True)
class Share:
    """What one task merges of a slice: changes of some keys, or all changes in some ``files`` of the changelog."""

    slice: DividedSlice
    keys: KeyShare
    files: tuple[str, ...] = ()

    @property
    def table(self) -> TableId:
        """The table's name in the source."""
        return self.slice.table
