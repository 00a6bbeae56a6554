"""Tables without a key, as multisets: equal rows are stored as often as the source has them.

With REPLICA IDENTITY FULL an update or delete contains all columns of its old row. Any of several equal rows may be
removed, so the table after a slice is (lake + every new image) − every old image, each of which removes one row equal
to it. Rows are equal if all their source values are, texts in ``__rescued`` included; their positions are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.lake.delete_columns import as_live, mode_of
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.names import META
from cdc_core.lake.reduce.latest import ChangedKeys, image_schema
from cdc_core.lake.rows.codes import Tuples
from cdc_core.lake.rows.images import column, image, validity


@dataclass(frozen=True, slots=True)
class NetRows:
    """The rows that a slice adds to a multiset and removes from it, after cancelling its own.

    ``plus`` contains lake rows, ``came`` is their number before cancelling. ``minus`` contains the distinct rows that
    the lake must lose, in the columns of ``image_schema``, ``times`` how often each, ``coder`` their numbers (None if
    there are none). Shape: minus[K], times[K]
    """

    plus: pa.Table
    came: int
    minus: pa.Table
    times: np.ndarray
    coder: Tuples | None


def arrivals(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows that a slice's events write, as lake rows. Shape: change rows[N] -> table[M] of ``schema``."""
    mode, came = mode_of(schema.names), _images(rows, "after", schema)
    return came if mode is DeleteMode.HARD else as_live(came, mode)


def net_rows(rows: pa.Table, schema: pa.Schema) -> NetRows:
    """Return the effect of change rows without truncates on a multiset of ``schema``."""
    plus = arrivals(rows, schema)
    minus = _images(rows, "before", schema).select(image_schema(schema).names)
    if not minus.num_rows:
        return NetRows(plus, plus.num_rows, minus, np.zeros(0, dtype=np.int64), None)
    coder, codes = Tuples.number([column(minus, name) for name in minus.schema.names], exact=True)
    times = np.bincount(codes)
    place = np.empty(len(times), dtype=np.int64)
    place[codes] = np.arange(len(codes))
    gone = taken(coder.codes([column(plus, name) for name in minus.schema.names]), times)
    came = plus.num_rows
    # Not copied where all rows stay: a row may be large.
    plus = plus.filter(pa.array(~gone)) if gone.any() else plus
    minus = minus if len(place) == minus.num_rows and (np.diff(place) == 1).all() else minus.take(pa.array(place))
    return NetRows(plus, came, minus, times, coder)


def changed_rows(rows: pa.Table, schema: pa.Schema) -> ChangedKeys:
    """Return which rows change rows write to a multiset and remove from it: its rows are their own keys."""
    names = image_schema(schema).names
    has = [validity(column(rows, side)) for side in ("after", "before")]
    images = [_images(rows, side, schema).select(names) for side in ("after", "before")]
    every = pa.concat_tables(images).combine_chunks()
    numbers = [np.full(rows.num_rows, -1, dtype=np.int64) for _ in has]
    count = 0
    if every.num_rows:
        _, codes = Tuples.number([column(every, name) for name in names], exact=True)
        count = int(codes.max()) + 1
        numbers[0][has[0]], numbers[1][has[1]] = codes[: images[0].num_rows], codes[images[0].num_rows :]
    upserts, removals = numbers
    return ChangedKeys(upserts, removals, np.zeros(rows.num_rows, dtype=bool), count)


def taken(codes: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the removed rows: of each number's rows the first ``times``, which is reduced by their count.

    Shape: int64[N] with -1 for rows that are not removed, int64[K] -> bool[N]
    """
    gone = np.zeros(len(codes), dtype=bool)
    sought = np.flatnonzero(codes >= 0)
    if not len(sought):
        return gone
    order = sought[np.argsort(codes[sought], kind="stable")]
    sorted_codes = codes[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = sorted_codes[1:] != sorted_codes[:-1]
    rank = np.arange(len(order)) - np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    mine = order[rank < times[sorted_codes]]
    gone[mine] = True
    times -= np.bincount(codes[mine], minlength=len(times))
    return gone


def _images(rows: pa.Table, name: str, schema: pa.Schema) -> pa.Table:
    """Return one image of each row that has it, as lake rows at the row's position."""
    has = validity(column(rows, name))
    some = rows if has.all() else rows.filter(pa.array(has))
    fields = image(some, name)
    for each in META:
        fields = fields.append_column(each.name, some.column(each.name))
    return conform(fields, schema)
