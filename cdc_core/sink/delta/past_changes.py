"""Changes of a history table that were superseded while they were in quarantine: which may go in as past versions.

Such a change was a state of the source until the change that superseded it. The version that it begins lies before
versions that the lake has, and it ends where that change stands at the latest, also where that one left no version (a
delete of a row that the lake did not have).

A complete change, or a delete, says everything itself. A change that leaves columns out needs the version that it
changed, so it stays in quarantine while that version is not in the lake.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cdc_core.sink.delta.delete_mode import POSITION
from cdc_core.sink.delta.images import column, validity
from cdc_core.sink.delta.reduction import Puts, image_schema, touched_keys
from cdc_core.sink.delta.row_keys import KeyColumns
from cdc_core.sink.delta.survey import is_op


def past_ready(
    rows: pa.Table, asked: np.ndarray, missing: np.ndarray, ends: pa.Table, key: Sequence[str], schema: pa.Schema
) -> np.ndarray:
    """Which of the change rows ``asked`` may go in.

    ``rows`` stand in stream order. ``missing`` ones are in quarantine and stay there; ``ends`` tells the place (LSN and
    index) where what each row put ended, null where it did not. ``key`` and ``schema`` are the lake table's.
    Shape: table[N], bool[N], bool[N], ends[N] -> bool[N]
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


def put_ends(rows: pa.Table, ends: pa.Table, key: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Deletes that stand where what the change rows put ended; none for a row that put nothing or has no end.

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
