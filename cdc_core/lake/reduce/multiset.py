"""Tables without a key, as multisets: equal rows are stored as often as the source has them.

With REPLICA IDENTITY FULL an update or delete contains all columns of its old row. Any of several equal rows may be
removed, so the table after a slice is (lake + every new image) − every old image, each of which removes one row equal
to it. Rows are equal if all their source values are, texts in ``__rescued`` included; their positions are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Bools
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
    there are none). ``needed`` is how many of each the lake must have before the slice, so that every change finds its
    row: at least ``times``, more if rows are added only after equal ones were removed. ``lsns``: the commit LSN of the
    first removal of each. Shape: minus[K], times[K], needed[K], lsns[K]
    """

    plus: pa.Table
    came: int
    minus: pa.Table
    times: np.ndarray
    coder: Tuples | None
    needed: np.ndarray
    lsns: np.ndarray

    @classmethod
    def added(cls, plus: pa.Table, minus: pa.Table) -> NetRows:
        """Return rows that are only added; ``minus`` has no rows."""
        none = np.zeros(0, dtype=np.int64)
        return cls(plus, plus.num_rows, minus, none, None, none, none)


def arrivals(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows that a slice's events write, as lake rows. Shape: change rows[N] -> table[M] of ``schema``."""
    mode, came = mode_of(schema.names), _images(rows, "after", schema)
    return came if mode is DeleteMode.HARD else as_live(came, mode)


def net_rows(rows: pa.Table, schema: pa.Schema) -> NetRows:
    """Return the effect of change rows without truncates on a multiset of ``schema``."""
    plus = arrivals(rows, schema)
    minus = _images(rows, "before", schema).select(image_schema(schema).names)
    if not minus.num_rows:
        return NetRows.added(plus, minus)
    coder, codes = Tuples.number([column(minus, name) for name in minus.schema.names], exact=True)
    times = np.bincount(codes)
    place = np.empty(len(times), dtype=np.int64)
    place[codes] = np.arange(len(codes))
    came_as = coder.codes([column(plus, name) for name in minus.schema.names])
    needed, lsns = _needed(rows, codes, came_as)
    gone = taken(came_as, times)
    came = plus.num_rows
    # Not copied where all rows stay: a row may be large.
    plus = plus.filter(pa.array(~gone)) if gone.any() else plus
    minus = minus if len(place) == minus.num_rows and (np.diff(place) == 1).all() else minus.take(pa.array(place))
    return NetRows(plus, came, minus, times, coder, needed, lsns)


def _needed(rows: pa.Table, removed: np.ndarray, added: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``NetRows.needed`` and ``lsns``, from the numbers of the old images and of the new ones, -1 for others.

    Shape: change rows[N], int64[R], int64[A] -> int64[K] each
    """
    lsn, index = (column(rows, name).to_numpy() for name in ("__commit_lsn", "__tx_index"))
    place = np.empty(rows.num_rows, dtype=np.int64)
    place[np.lexsort((index, lsn))] = np.arange(rows.num_rows)
    has_old, has_new = (validity(column(rows, side)) for side in ("before", "after"))
    equal = added >= 0
    code = np.concatenate([removed, added[equal]])
    # An update removes its old row before it adds the new one.
    at = np.concatenate([2 * place[has_old], 2 * place[has_new][equal] + 1])
    order = np.lexsort((at, code))
    lacks = np.cumsum(np.where(order < len(removed), 1, -1))
    starts = np.flatnonzero(np.diff(code[order], prepend=-1))
    before = np.concatenate([[0], lacks[starts[1:] - 1]])
    most = np.maximum.reduceat(lacks, starts) - before
    lsns = np.full(len(starts), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(lsns, removed, lsn[has_old])
    return np.maximum(most, 0), lsns


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


def taken(codes: np.ndarray, times: np.ndarray) -> Bools:
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
    for field in META:
        fields = fields.append_column(field.name, some.column(field.name))
    return conform(fields, schema)
