"""Delete mode history: change rows → every version of every row, and the ends of versions that the lake has.

Each event that writes a row at a key begins a version there, even if it changed no value; the key's next event ends it.
A key change ends the old key's version and begins one at the new key. Positions are (commit LSN, index in the
transaction), so versions of one transaction do not overlap although they have the same LSN: by LSN alone all but the
transaction's last have length zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.lake.delete_columns import CURRENT, FROM_LSN, FROM_TIME, POSITION, TO, as_live, with_column
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.reduce.expected_rows import ExpectedRows
from cdc_core.lake.reduce.latest import ReducedSlice, SliceEvents, state_rows
from cdc_core.lake.reduce.row_states import Truncation, known_states, next_of_key, with_truncates
from cdc_core.lake.rows.images import chosen, column, indices
from cdc_core.lake.rows.row_keys import KeyIndex


@dataclass(frozen=True, slots=True)
class VersionedSlice:
    """The versions that a slice begins, and every key event of a key, which may end a version that the lake has.

    ``index`` numbers the keys, ``keys`` contains each one's columns. A key event is an event at a key, ordered by time;
    ``key`` is its key's number and ``at`` its position (the columns of POSITION). ``rows`` are the versions, each begun
    by the key event ``begun``, in the lake's schema; they end at their key's next one. ``keep`` and ``seek`` are as in
    ``ReducedSlice``: values taken from the lake's current row at a row of ``keys``. ``expected``: the keys at which the
    lake must have a current row.
    ``found``: the versions are rows that were read, and one that equals the lake's current row changes nothing.
    Shape: keys[K], key[T], at[T], rows[V], begun[V], masks of keep[V], seek[V]
    """

    index: KeyIndex
    keys: pa.Table
    key: np.ndarray
    at: pa.Table
    rows: pa.Table
    begun: np.ndarray
    keep: dict[str, np.ndarray]
    seek: np.ndarray
    expected: ExpectedRows
    found: bool = False


def version_slice(rows: pa.Table, key: Sequence[str], schema: pa.Schema) -> VersionedSlice:
    """Return the versions of change rows in any order; ``schema`` is the lake's.

    A truncate ends those of the slice's keys here, and all others in ``lake/apply/truncated``.
    """
    events = SliceEvents.of(rows, key, schema)
    key_events = with_truncates(events.key_events, events.keys.num_rows)
    begun = np.flatnonzero(~key_events.deleted)
    known = known_states(key_events, begun, events.upserts.unsent, events.image_names)
    at = events.rows.select(list(POSITION)).take(pa.array(key_events.row))
    following = next_of_key(key_events.key)[begun]
    own = _own_columns(at.take(pa.array(begun)), at.take(indices(following)), following < 0)
    made = state_rows(events.upserts, known.sources, known.base, schema, own)
    expected = ExpectedRows.of(key_events, events.rows, events.truncates, events.keys.num_rows)
    return VersionedSlice(events.index, events.keys, key_events.key, at, made, begun, known.keep, known.seek, expected)


def found_versions(reduced: ReducedSlice, schema: pa.Schema, lsn: int) -> VersionedSlice:
    """Return the source's rows at an LSN, and the keys without a row, as versions from (``lsn``, -1) on.

    ``reduced`` is without the columns of the mode, and keeps no value of the lake's rows.
    """
    count = len(reduced.deleted)
    rows = with_column(reduced.rows, POSITION[0], pa.array(np.full(count, lsn, dtype=np.int64)))
    rows = with_column(rows, POSITION[1], pa.array(np.full(count, -1, dtype=np.int64)))
    begun = np.flatnonzero(~reduced.deleted)
    made = as_live(rows.take(pa.array(begun)), DeleteMode.HISTORY).select(schema.names)
    nothing = np.full(len(begun), -1, dtype=np.int64)
    at = rows.select(list(POSITION))
    return VersionedSlice(
        reduced.index, reduced.keys, np.arange(count), at, made, begun, {}, nothing, reduced.expected, found=True
    )


def _own_columns(began: pa.Table, ended: pa.Table, current: np.ndarray) -> pa.Table:
    lsn, index, time = (column(ended, name) for name in POSITION)
    own = began.append_column(FROM_LSN, column(began, POSITION[0])).append_column(FROM_TIME, column(began, POSITION[2]))
    for name, values in zip(TO, (lsn, index, time), strict=True):
        own = own.append_column(name, values)
    return own.append_column(CURRENT, pa.array(current))


def ended(rows: pa.Table, at: pa.Table) -> pa.Table:
    """Set the ends of current rows, one each. Shape: table[N], at[N] with the columns of POSITION -> table[N]."""
    for name, source in zip(TO, POSITION, strict=True):
        rows = with_column(rows, name, column(at, source))
    return with_column(rows, CURRENT, pa.array(np.zeros(rows.num_rows, dtype=bool)))


def closed(rows: pa.Table, at: Truncation) -> pa.Table:
    """Set the same end for all current rows."""
    values = (pa.scalar(at.lsn, pa.int64()), pa.scalar(at.index, pa.int64()), at.at)
    ends = {name: pa.repeat(value, rows.num_rows) for name, value in zip(POSITION, values, strict=True)}
    return ended(rows, pa.table(ends))


def reopened(rows: pa.Table, places: np.ndarray) -> pa.Table:
    """Make the lake rows at ``places`` current again. Shape: table[N], int64[P] -> table[N]."""
    if not len(places):
        return rows
    mask = np.zeros(rows.num_rows, dtype=bool)
    mask[places] = True
    for name in TO:
        values = column(rows, name)
        rows = with_column(rows, name, chosen(mask, pa.nulls(len(mask), values.type), values))
    return with_column(rows, CURRENT, pa.array(mask | column(rows, CURRENT).to_numpy(zero_copy_only=False)))
