"""A history table's quarantine in a slice: superseded changes are kept, and replayed as past versions.

In a history table a superseded change is still a past state of the source. So it stays in the quarantine table as one
that may be replayed (the bit PAST of its effects), with the position of the change that superseded it. A replay is a
separate slice before all changes that are not merged yet: every change that it merges is inserted between the existing
versions of the lake (``lake/apply/past_versions``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.engine.slice.order import Merge, Replay
from cdc_core.lake.delete_columns import POSITION, mode_of
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.reduce.deferred_changes import Deferred
from cdc_core.lake.reduce.past_changes import earlier_ends, past_ready, put_ends
from cdc_core.lake.rows.images import column
from cdc_core.lake.rows.row_keys import merge_key
from cdc_core.lake.schema.change_columns import empty_changes
from cdc_core.lake.stores.quarantine import ENDED, PAST
from cdc_core.lsn import just_after

Slices = Iterator[tuple[Merge, pa.Table]]

_TIME = pa.timestamp("us", tz="UTC")
NO_ENDS = pa.schema(list(zip(ENDED, (pa.int64(), pa.int64(), _TIME), strict=True))).empty_table()
"""The columns of ENDED, without rows."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The result of ``hold``, and the superseded changes of a history table.

    ``rows`` are for the lake; ``effects`` are of all rows, ``ends`` the positions of the changes that superseded them.
    ``placed``: rows to be inserted by their positions instead, in a replay of a history table. Shape: int8[N], ends[N]
    """

    rows: pa.Table
    effects: np.ndarray
    ends: pa.Table
    placed: pa.Table | None = None


def with_replay(merge: Merge, replay: Replay, schema: pa.Schema, merged: int | None, slices: Slices) -> Slices:
    """Return the slices of a merge with its replay: in the first slice, or in a slice before it for a history table and
    where what waits is discarded.

    ``schema`` is the lake table's, ``merged`` the LSN up to which it is merged, None before the first merge.
    """
    none = empty_changes(schema)
    if not replay.drop and mode_of(schema.names) is not DeleteMode.HISTORY:
        return itertools.chain([next(slices, (merge, none))], slices)
    # Before the first merge nothing is in quarantine.
    first = [] if merged is None else [(merge.up_to(just_after(merged)), none)]
    return itertools.chain(first, ((part.without_replay(), rows) for part, rows in slices))


def keep_past(
    merge: Merge,
    every: pa.Table,
    refused: np.ndarray,
    effects: np.ndarray,
    ends: pa.Table,
    held: Deferred,
    schema: pa.Schema,
) -> Kept:
    """Decide which of the rows given to ``hold`` are merged into the lake table of ``schema``, and which stay.

    ``effects`` are the previous ones, ``ends`` the positions at which the first of the rows were superseded before.
    """
    ends = pa.concat_tables([ends, conform(pa.table({ENDED[0]: pa.nulls(every.num_rows, pa.int64())}), NO_ENDS.schema)])
    ends = ends.slice(0, every.num_rows)
    if mode_of(schema.names) is not DeleteMode.HISTORY:
        return Kept(held.rows, held.effects, ends)
    past, key = held.superseded | (effects & PAST != 0), merge_key(merge.table)
    left = np.where(past, PAST, held.effects).astype(np.int8)
    if past.any():
        ends = earlier_ends(every, past, ends, held.rows, key, schema)
    if merge.replay is None:
        return Kept(held.rows, left, ends)
    asked = past & ~refused
    ready = past_ready(every, asked, (left != 0) & ~asked, ends, key, schema)
    left[ready] = 0
    mask = pa.array(ready)
    some, theirs = every.filter(mask), ends.filter(mask)
    placed = pa.concat_tables([held.rows, some])
    ends = earlier_ends(every, left == PAST, ends, placed, key, schema)
    marks = conform(put_ends(some, theirs, key, schema), every.schema)
    return Kept(every.slice(0, 0), left, ends, pa.concat_tables([marks, placed]))


def still_there(places: pa.Table, read: pa.Table) -> pa.Table:
    """Return rows of the quarantine table without superseded ones whose change is no longer in the changelog."""
    names = list(POSITION[:2])
    if places.num_rows == read.num_rows:
        return places
    at = places.append_column("at", pa.array(np.arange(places.num_rows)))
    found = np.zeros(places.num_rows, dtype=bool)
    there = at.select([*names, "at"]).join(read.select(names), keys=names, join_type="left semi")
    found[there.column("at").to_numpy()] = True
    waits = column(places, "effects").to_numpy() & ~PAST != 0
    return places.filter(pa.array(found | waits))


def differ(ends: pa.Table, before: pa.Table) -> np.ndarray:
    """Return which rows have an end other than before, if it was known. Shape: ends[N], ends[N or 0] -> bool[N]"""
    if not before.num_rows:
        return np.zeros(ends.num_rows, dtype=bool)
    now, then = (
        np.stack([column(each, name).fill_null(-1).to_numpy() for name in ENDED[:2]]) for each in (ends, before)
    )
    return np.asarray((now != then).any(axis=0))


def beside(rows: pa.Table, more: pa.Table) -> pa.Table:
    """Combine the columns of two tables with equal numbers of rows."""
    for name, values in zip(more.schema.names, more.columns, strict=True):
        rows = rows.append_column(name, values)
    return rows
