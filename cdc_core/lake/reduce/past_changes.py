"""Changes of a history table that were superseded in quarantine: which may be merged as past versions.

Such a change was a state of the source until the next change of its key, so its version precedes later ones. If that
next change was merged while this version was missing, the lake may contain no trace of it (a delete of a row that the
lake did not have). So the quarantine table stores the end of each missing version: the position of the first merged
change of its key after it.

A complete change, or a delete, can be merged on its own. A change event without unchanged TOAST columns depends on the
previous version of its row, so it stays in quarantine while that version is not in the lake.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cdc_core.lake.delete_columns import POSITION
from cdc_core.lake.reduce.latest import Puts, image_schema, touched_keys
from cdc_core.lake.rows.images import column, indices, validity
from cdc_core.lake.rows.row_keys import KeyColumns
from cdc_core.lake.rows.survey import is_op


def past_ready(
    rows: pa.Table, asked: np.ndarray, missing: np.ndarray, ends: pa.Table, key: Sequence[str], schema: pa.Schema
) -> np.ndarray:
    """Return which of the change rows ``asked`` may be merged.

    ``rows`` are in stream order. ``missing`` ones are in quarantine and stay there; ``ends`` are the positions (LSN and
    index) at which each row's version ended, null if it did not. ``key`` and ``schema`` are the lake table's. Shape:
    table[N], bool[N], bool[N], ends[N] -> bool[N]
    """
    touched = touched_keys(rows, key, schema)
    lsn, index = (column(rows, name).to_numpy() for name in POSITION[:2])
    never = np.iinfo(np.int64).max
    end_lsn, end_index = (column(ends, name).fill_null(never).to_numpy() for name in ends.schema.names[:2])
    base = np.where(touched.takes >= 0, touched.takes, touched.puts)
    lost: dict[int, list[int]] = {}
    ready = asked.copy()
    # row-wise: rows in quarantine
    for at in np.flatnonzero(asked | missing).tolist():
        if ready[at] and touched.incomplete[at]:
            place = lsn[at], index[at]
            ready[at] = all((end_lsn[each], end_index[each]) < place for each in lost.get(int(base[at]), ()))
        if not ready[at] and touched.puts[at] >= 0:
            lost.setdefault(int(touched.puts[at]), []).append(at)
    return ready


def earlier_ends(
    rows: pa.Table, missing: np.ndarray, ends: pa.Table, applied: pa.Table, key: Sequence[str], schema: pa.Schema
) -> pa.Table:
    """Return the ends of ``missing`` rows' versions, no later than the first applied change of the same key after each.

    The lake has no version from which this position could be read. ``applied`` are change rows in the columns of
    ``rows``. Shape: rows[N], bool[N], ends[N] (LSN, index and time) -> ends[N]
    """
    count, names = rows.num_rows, ends.schema.names
    every = pa.concat_tables([rows, applied]).combine_chunks()
    touched = touched_keys(every, key, schema)
    ended = pa.table([column(ends, name) for name in names], names=list(POSITION))
    places = pa.concat_tables([every.select(list(POSITION)), ended])
    grid = np.stack([column(places, name).fill_null(-1).to_numpy() for name in POSITION[:2]], axis=1)
    order = np.asarray(np.unique(grid, axis=0, return_inverse=True)[1]).reshape(-1)
    own, theirs, old = np.split(order, [count, every.num_rows])
    later = np.arange(count, every.num_rows)
    never, step = len(order), len(order) + 1
    at = np.where(validity(column(ends, names[0])), old, never)
    source = np.where(at < never, every.num_rows + np.arange(count), -1)
    asked = np.flatnonzero(missing & (touched.puts >= 0)[:count])
    # A truncate touches every key.
    cuts = later[is_op(applied, "t")]
    for numbers in (touched.puts, touched.takes, None):
        hits = cuts if numbers is None else later[numbers[later] >= 0]
        keys = np.zeros(len(every), dtype=np.int64) if numbers is None else numbers
        wanted = np.zeros(count, dtype=np.int64) if numbers is None else touched.puts[:count]
        codes = keys[hits] * step + theirs[hits - count]
        by_code = np.argsort(codes, kind="stable")
        found = np.searchsorted(codes[by_code], wanted[asked] * step + own[asked], side="right")
        inside = np.flatnonzero(found < len(hits))
        hit = hits[by_code[found[inside]]]
        mine = keys[hit] == wanted[asked[inside]]
        row, hit = asked[inside[mine]], hit[mine]
        nearer = theirs[hit - count] < at[row]
        at[row[nearer]], source[row[nearer]] = theirs[hit[nearer] - count], hit[nearer]
    taken = places.take(indices(source))
    return pa.Table.from_arrays([column(taken, name) for name in POSITION], schema=ends.schema)


def put_ends(rows: pa.Table, ends: pa.Table, key: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return deletes at the ends of the change rows' versions; none for a row without a version or an end.

    Shape: table[N], ends[N] (LSN, index and time) -> table[M]
    """
    new = Puts.of(rows, KeyColumns.of(key, schema), image_schema(schema)).columns
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
