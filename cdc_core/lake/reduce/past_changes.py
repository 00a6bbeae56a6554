"""Changes of a history table that were superseded in quarantine: which may be merged as past versions.

Such a change was a state of the source until the next change of its key, so its version precedes later ones. If that
next change was merged while this version was missing, the lake may contain no trace of it (a delete of a row that the
lake did not have). So the quarantine table stores the end of each missing version: the position of the first merged
change of its key after it.

A complete change, or a delete, can be merged on its own. A change event without unchanged TOAST columns depends on the
previous version of its row, so it stays in quarantine while that version is not in the lake.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cdc_core.lake.delete_columns import POSITION
from cdc_core.lake.reduce.latest import ChangedKeys, Upserts, changed_keys, image_schema
from cdc_core.lake.rows.images import column, indices, validity
from cdc_core.lake.rows.row_keys import KeyColumns
from cdc_core.lake.rows.survey import is_op

_EVERY_KEY = -1


def past_ready(
    rows: pa.Table, asked: np.ndarray, missing: np.ndarray, ends: pa.Table, key: Sequence[str], schema: pa.Schema
) -> np.ndarray:
    """Return which of the change rows ``asked`` may be merged.

    ``rows`` are in stream order. ``missing`` ones are in quarantine and stay there; ``ends`` are the positions (LSN and
    index) at which each row's version ended, null if it did not. ``key`` and ``schema`` are the lake table's. Shape:
    table[N], bool[N], bool[N], ends[N] -> bool[N]
    """
    changed = changed_keys(rows, key, schema)
    lsn, index = (column(rows, name).to_numpy() for name in POSITION[:2])
    never = np.iinfo(np.int64).max
    end_lsn, end_index = (column(ends, name).fill_null(never).to_numpy() for name in ends.schema.names[:2])
    base = np.where(changed.removals >= 0, changed.removals, changed.upserts)
    lost: dict[int, list[int]] = {}
    ready = asked.copy()
    # row-wise: rows in quarantine
    for at in np.flatnonzero(asked | missing).tolist():
        if ready[at] and changed.incomplete[at]:
            place = lsn[at], index[at]
            ready[at] = all((end_lsn[each], end_index[each]) < place for each in lost.get(int(base[at]), ()))
        if not ready[at] and changed.upserts[at] >= 0:
            lost.setdefault(int(changed.upserts[at]), []).append(at)
    return ready


def earlier_ends(
    rows: pa.Table, missing: np.ndarray, ends: pa.Table, applied: pa.Table, key: Sequence[str], schema: pa.Schema
) -> pa.Table:
    """Return the ends of ``missing`` rows' versions, no later than the first applied change of the same key after each.

    The lake has no version from which this position could be read. ``applied`` are change rows in the columns of
    ``rows``. Shape: rows[N], bool[N], ends[N] (LSN, index and time) -> ends[N]
    """
    count, every = rows.num_rows, pa.concat_tables([rows, applied]).combine_chunks()
    changed = changed_keys(every, key, schema)
    lsn, index = (column(every, name).to_numpy() for name in POSITION[:2])
    end_lsn, end_index = (column(ends, name).fill_null(-1).to_numpy() for name in ends.schema.names[:2])
    asked = np.flatnonzero(missing & (changed.upserts[:count] >= 0))
    by_key = _by_key(changed, is_op(every, "t"), changed.upserts[asked], count, lsn, index)
    has_end = validity(column(ends, ends.schema.names[0]))
    # Of each row: the change at which its version ends, or, after those, its present end; -1 for none.
    source = np.where(has_end, every.num_rows + np.arange(count), -1)
    # row-wise: rows in quarantine
    for row in asked.tolist():
        nearest = (int(end_lsn[row]), int(end_index[row])) if has_end[row] else None
        for number in (int(changed.upserts[row]), _EVERY_KEY):
            places = by_key.get(number, [])
            at = bisect_right(places, (lsn[row], index[row], len(lsn)))
            if at < len(places) and (nearest is None or places[at][:2] < nearest):
                nearest, source[row] = places[at][:2], places[at][2]
    ended = pa.table([column(ends, name) for name in ends.schema.names], names=list(POSITION))
    taken = pa.concat_tables([every.select(list(POSITION)), ended]).take(indices(source))
    return pa.Table.from_arrays([column(taken, name) for name in POSITION], schema=ends.schema)


def _by_key(
    changed: ChangedKeys, truncates: np.ndarray, wanted: np.ndarray, start: int, lsn: np.ndarray, index: np.ndarray
) -> dict[int, list[tuple[int, int, int]]]:
    """Return the changes from row ``start`` on that touch each of the keys ``wanted``: (LSN, index, row), in order.

    Truncates, which touch every key, are under _EVERY_KEY. Shape: [N], but wanted[K]
    """
    touches = truncates | np.isin(changed.upserts, wanted) | np.isin(changed.removals, wanted)
    touches[:start] = False
    rows = np.flatnonzero(touches)
    found: dict[int, list[tuple[int, int, int]]] = {}
    # row-wise: changes of keys that are in quarantine
    for row in rows[np.lexsort((index[rows], lsn[rows]))].tolist():
        numbers = {_EVERY_KEY} if truncates[row] else {int(changed.upserts[row]), int(changed.removals[row])} - {-1}
        for number in numbers:
            found.setdefault(number, []).append((int(lsn[row]), int(index[row]), row))
    return found


def put_ends(rows: pa.Table, ends: pa.Table, key: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return deletes at the ends of the change rows' versions; none for a row without a version or an end.

    Shape: table[N], ends[N] (LSN, index and time) -> table[M]
    """
    new = Upserts.of(rows, KeyColumns.of(key, schema), image_schema(schema)).columns
    image = pa.StructArray.from_arrays([column(new, each.name) for each in new.schema], fields=list(new.schema))
    count = rows.num_rows
    made = {
        "__op": pa.array(np.full(count, "d", dtype=object), pa.string()),
        **{name: column(ends, end) for name, end in zip(POSITION, ends.schema.names, strict=True)},
        "__unchanged": pa.nulls(count, pa.list_(pa.string())),
        "before": image,
        "after": pa.nulls(count, image.type),
    }
    puts = ~is_op(rows, "d") & validity(column(ends, ends.schema.names[0]))
    return pa.table(made).filter(pa.array(puts))
