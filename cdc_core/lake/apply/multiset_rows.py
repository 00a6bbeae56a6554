"""Applies a slice to a lake table without a key: rows are removed by all of their values.

There is no index of entire rows. The files that may contain a removed row, by the log's statistics, are read: of a
large one some columns first, until few rows are left that may be equal to a removed one, and only these rows whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Ints
from cdc_core.lake.apply.absent import AbsentRows
from cdc_core.lake.apply.rewrite import Rewrite, TouchedFile, effect
from cdc_core.lake.apply.ways import Ways, live_places
from cdc_core.lake.delta.candidates import Content, Ranges
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.reading import SMALL_BYTES, has_large_rows
from cdc_core.lake.delta.row_groups import release
from cdc_core.lake.reduce.multiset import NetRows, taken
from cdc_core.lake.rows.codes import Coder, Tuples
from cdc_core.lake.rows.images import column

_MOST_COLUMNS = 3
_FEW = 1 / 16
"""Share of a file's rows that are read by their positions: of more, reading the whole file costs less."""


@dataclass(frozen=True, slots=True)
class MultisetChanges:
    """The rows that a slice adds and removes. ``events`` is the number of its change rows."""

    events: int
    net: NetRows

    def candidates(self, content: Content) -> list[DataFile]:
        """Return the files that may contain rows that changes need, from the statistics alone; no file is read."""
        minus = self.net.minus.filter(pa.array(self.net.needed > 0))
        return Ranges.of(minus, minus.schema.names).candidates(content.files) if minus.num_rows else []

    def apply(self, content: Content, ways: Ways, file_bytes: int) -> Rewrite:
        """Return the effect: of equal rows, those found first are removed."""
        net = self.net
        times, needed, selective = net.times.copy(), net.needed.copy(), _selective(net)
        touched: list[TouchedFile] = []
        for file in self.candidates(content):
            if net.coder is None or not needed.any():
                break
            places = _removed(content, file, net.minus.schema.names, net.coder, selective, times, needed)
            if len(places):
                touched.append(TouchedFile(file, places))
        lost = sum(len(touched_file.places) for touched_file in touched) + net.came - net.plus.num_rows
        removed, marks, rows = effect(content, touched, net.plus, ways, file_bytes)
        return Rewrite(removed, rows, net.came, 0, lost, marks, absent_rows(net, needed))


def absent_rows(net: NetRows, needed: np.ndarray) -> AbsentRows | None:
    """Return the rows that are left of those that changes need, as often as in ``needed``. Shape: int64[K]"""
    numbers = np.flatnonzero(needed)
    if not len(numbers) or net.coder is None:
        return None
    keeps = np.zeros(len(numbers), dtype=bool)
    return AbsentRows(numbers, needed[numbers], net.lsns[numbers], keeps, None, net.coder)


def _removed(
    content: Content,
    file: DataFile,
    names: list[str],
    coder: Tuples,
    selective: Sequence[tuple[str, Coder]],
    times: np.ndarray,
    needed: np.ndarray,
) -> Ints:
    """Return the positions in a file of the rows that are removed; reduces ``times`` by them.

    ``needed`` is reduced by all rows equal to one. Shape: times[K], needed[K] -> int64[P]
    """
    places = _possible(content, file, selective)
    if places is not None:
        if not len(places):
            return places
        rows = content.read_at(file, places, names)
        codes = coder.codes([column(rows, name) for name in names])
        _reduce(needed, codes)
        return np.asarray(places[taken(codes, times)])
    parts = list[np.ndarray]()
    for batch in content.batches(file) if has_large_rows(file) else iter([content.read(file, names)]):
        codes = coder.codes([column(batch, name) for name in names])
        _reduce(needed, codes)
        parts.append(taken(codes, times))
        octets = batch.nbytes
        del batch
        release(octets)
    gone = np.concatenate(parts) if parts else np.zeros(0, dtype=bool)
    return live_places(content, file, np.flatnonzero(gone))


def _reduce(needed: np.ndarray, codes: np.ndarray) -> None:
    """Reduce the numbers of needed rows by those that are there. Shape: int64[K], int64[N] with -1 for others"""
    np.maximum(needed - np.bincount(codes[codes >= 0], minlength=len(needed)), 0, out=needed)


def _possible(content: Content, file: DataFile, selective: Sequence[tuple[str, Coder]]) -> np.ndarray | None:
    """Return the positions of the few rows that may be equal to a removed one, from some of the columns.

    None if the file is small, or if no few rows are left. Shape: int64[P], ascending, none marked as deleted
    """
    if file.size <= SMALL_BYTES or has_large_rows(file):
        return None
    may_be: np.ndarray | None = None
    for name, part in selective:
        known = part.codes(column(content.read(file, [name]), name)) >= 0
        may_be = known if may_be is None else may_be & known
        if np.count_nonzero(may_be) <= _FEW * len(may_be):
            return live_places(content, file, np.flatnonzero(may_be))
    return None


def _selective(net: NetRows) -> list[tuple[str, Coder]]:
    """Return columns of simple types: those first that differ in most of the removed rows, narrow ones before texts."""
    columns: list[tuple[int, bool, int, str, Coder]] = []
    parts = () if net.coder is None else net.coder.parts
    for name, part in zip(net.minus.schema.names, parts, strict=False):
        values = column(net.minus, name)
        if not pa.types.is_nested(values.type):
            is_wide = not pa.types.is_primitive(values.type) or pa.types.is_boolean(values.type)
            columns.append((-len(values.unique()), is_wide, len(columns), name, part))
    return [(name, part) for *_, name, part in sorted(columns, key=lambda entry: entry[:3])][:_MOST_COLUMNS]
