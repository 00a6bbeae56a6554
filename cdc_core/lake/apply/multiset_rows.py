"""Applies a slice to a lake table without a key: rows are removed by all of their values.

There is no index of entire rows: the files that may contain a removed row, by the log's statistics, are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from cdc_core.lake.apply.rewrite import Rewrite, TouchedFile, effect
from cdc_core.lake.apply.strategy import MergeStrategy
from cdc_core.lake.apply.ways import Ways, live_places
from cdc_core.lake.delta.candidates import Content, Ranges
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.reading import has_large_rows
from cdc_core.lake.delta.row_groups import release
from cdc_core.lake.reduce.multiset import NetRows, taken
from cdc_core.lake.rows.images import column


@dataclass(frozen=True, slots=True)
class MultisetChanges:
    """The rows that a slice adds and removes. ``events`` is the number of its change rows."""

    strategy: ClassVar[MergeStrategy] = MergeStrategy.MULTISET
    events: int
    guarded: bool
    net: NetRows

    def candidates(self, content: Content) -> list[DataFile]:
        """Return the files that may contain removed rows, from the log's statistics alone; no file is read."""
        minus = self.net.minus.filter(pa.array(self.net.times > 0))
        return Ranges.of(minus, minus.schema.names).candidates(content.files) if minus.num_rows else []

    def apply(self, content: Content, ways: Ways, file_bytes: int) -> Rewrite:
        """Return the effect: of equal rows, those found first are removed."""
        net = self.net
        names, times = net.minus.schema.names, net.times.copy()
        touched: list[TouchedFile] = []
        for file in self.candidates(content):
            if net.coder is None or not times.any():
                break
            parts = list[np.ndarray]()
            for held in content.batches(file) if has_large_rows(file) else iter([content.read(file, names)]):
                parts.append(taken(net.coder.codes([column(held, name) for name in names]), times))
                octets = held.nbytes
                del held
                release(octets)
            gone = np.concatenate(parts) if parts else np.zeros(0, dtype=bool)
            if gone.any():
                touched.append(TouchedFile(file, live_places(content, file, np.flatnonzero(gone))))
        lost = sum(len(found.places) for found in touched) + net.came - net.plus.num_rows
        removed, marks, rows = effect(content, touched, net.plus, ways, file_bytes)
        return Rewrite(removed, rows, net.came, 0, lost, marks)
