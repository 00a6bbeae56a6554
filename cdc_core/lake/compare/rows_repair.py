"""Repairs a table without a key: the rows that the lake lacks are added, and those that it has too many of removed.

Which rows these are is known for one version of the lake table (``compare``), so the commit must be the next one: after
another one the table is compared again. A row that is added has the position up to which the table is merged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.clock import now_us
from cdc_core.lake.apply.multiset_rows import MultisetChanges
from cdc_core.lake.compare.rows import Compared
from cdc_core.lake.compare.target import Target
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.names import META
from cdc_core.lake.reduce.multiset import NetRows, taken
from cdc_core.lake.rows.codes import Tuples
from cdc_core.lake.rows.images import column
from cdc_core.lake.schema.target_schema import TargetSchema
from cdc_core.lake.slice.order import Merge, SnapshotInForce
from cdc_core.lake.slice.task import SliceTask


@dataclass(frozen=True, slots=True)
class Surplus:
    """The rows that a lake table lacks and has too many of, each as often as it does. Shape: compared.schema[N], [M]"""

    missing: pa.Table
    extra: pa.Table

    @property
    def count(self) -> int:
        """The number of rows."""
        return int(self.missing.num_rows + self.extra.num_rows)


def picked(rows: pa.Table, compared: Compared, values: np.ndarray, count: np.ndarray) -> pa.Table:
    """Return so many rows with each of some sorted digests, or as many as there are. Shape: uint64[D], int64[D]"""
    if not rows.num_rows or not len(values):
        return rows.slice(0, 0)
    digests = compared.digests(rows)
    at = np.minimum(np.searchsorted(values, digests), len(values) - 1)
    return rows.filter(pa.array(taken(np.where(values[at] == digests, at, -1), count.copy())))


def write_surplus(slices: SliceTask, target: Target, surplus: Surplus) -> None:
    """Write a table's rows in one commit.

    Raises CommitConflictError if another commit was made since the table was compared.
    """
    place = target.version.place
    snapshot = SnapshotInForce(place.merge_token, place.lsn)
    merge = Merge(TargetSchema(target.table, target.version.schema_version), snapshot, target.table, place.merged)
    changes = MultisetChanges(surplus.count, _net_rows(target, surplus))
    slices.writer.write_chunks(target.lake, merge, changes, slices.scope)


def _net_rows(target: Target, surplus: Surplus) -> NetRows:
    compared, lake = target.compared, target.lake.schema
    plus = surplus.missing.select(compared.read)
    for field, value in zip(META, (target.version.place.merged, -1, now_us()), strict=True):
        plus = plus.append_column(field, pa.array(np.full(plus.num_rows, value, dtype=np.int64)).cast(field.type))
    plus, minus = conform(plus, lake), surplus.extra.select(compared.read).combine_chunks()
    if not minus.num_rows:
        return NetRows.added(plus, minus)
    coder, codes = Tuples.number([column(minus, name) for name in compared.read], exact=True)
    times = np.bincount(codes)
    place = np.empty(len(times), dtype=np.int64)
    place[codes] = np.arange(len(codes))
    lsns = np.full(len(times), target.version.place.merged, dtype=np.int64)
    return NetRows(plus, plus.num_rows, minus.take(pa.array(place)), times, coder, times, lsns)
