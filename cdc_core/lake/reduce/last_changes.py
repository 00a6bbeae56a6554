"""Which change rows of a slice decide what it leaves, for tables that have the last state of each key (hard, soft).

A slice of a million updates of one row cannot be divided by keys. Of the changes of a key those before the last
complete image are not needed, and are dropped while the rows are read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Bools
from cdc_core.lake.reduce.latest import changed_keys
from cdc_core.lake.rows.survey import is_op


def last_changes(rows: pa.Table, key: Sequence[str], schema: pa.Schema) -> Bools:
    """Return the rows from which the last state of each key follows, and whether the lake must have its row before.

    ``rows`` are change rows without truncates, of which those of a key are in stream order and none is a key change;
    ``schema`` is the lake's. Kept are the last complete image of a key and what follows it, the key's first change, and
    a change that follows a delete without an insert, which tells that a row is missing. Shape: change rows[N] ->
    bool[N]
    """
    changed, deletes = changed_keys(rows, key, schema), is_op(rows, "d")
    code = np.where(changed.upserts >= 0, changed.upserts, changed.removals)
    order = np.argsort(code, kind="stable")
    code, deletes = code[order], deletes[order]
    is_first = np.diff(code, prepend=-1) != 0
    place, start = np.arange(len(order)), np.flatnonzero(is_first)
    complete = ~deletes & ~changed.incomplete[order]
    # The last complete image of each key; its first change if there is none.
    last = np.maximum.reduceat(np.where(complete, place, -1), start) if len(start) else place
    kept = is_first | (place >= last[np.cumsum(is_first) - 1])
    lost = np.zeros(len(order), dtype=bool)
    lost[1:] = deletes[:-1] & ~is_first[1:] & ~is_op(rows, "c")[order][1:]
    kept |= lost
    kept[:-1] |= lost[1:]
    out = np.empty(len(order), dtype=bool)
    out[order] = kept
    return out
