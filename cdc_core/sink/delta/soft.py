"""Delete mode soft: the last state of each key, where a row that no longer exists keeps its last values.

The lake has one row per key, with ``__deleted`` if the source has none now. A row that changed its key stays at its old
key as deleted, with the values that it had there. The result does not depend on how changes are divided into slices: a
row that was inserted and deleted within one slice is stored as deleted, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cdc_core.sink.delta.append import in_order
from cdc_core.sink.delta.delete_mode import DELETED, POSITION, with_column
from cdc_core.sink.delta.images import chosen, column
from cdc_core.sink.delta.reduction import Puts, ReducedSlice, Truncation, image_schema, numbered_keys, state_rows
from cdc_core.sink.delta.row_keys import KeyColumns
from cdc_core.sink.delta.row_lineage import Touches
from cdc_core.sink.delta.row_states import known_states, truncation_of, with_truncates
from cdc_core.sink.delta.shape import RESCUED
from cdc_core.sink.delta.survey import is_op


def reduce_soft(rows: pa.Table, key: Sequence[str], schema: pa.Schema) -> ReducedSlice:
    """Return the last state of each key. ``rows`` are change rows in any order, ``schema`` is the lake's.

    A key without an image in the slice keeps all of the lake row's columns and is only marked.
    """
    rows = in_order(rows)
    columns = KeyColumns.of(key, schema)
    images = image_schema(schema)
    puts = Puts.of(rows, columns, images)
    truncates = is_op(rows, "t")
    deletes = is_op(rows, "d") | truncates
    index, keys, new, old = numbered_keys(rows, columns, puts, deletes)
    touches = with_truncates(Touches.of(new, old, deletes, is_op(rows, "u")), keys.num_rows)
    last = touches.last(keys.num_rows)
    names = [name for name in images.names if name != RESCUED]
    known = known_states(touches, last, puts.unsent, names)
    own = rows.select(list(POSITION)).take(pa.array(touches.row[last]))
    own = own.append_column(DELETED, pa.array(touches.deleted[last]))
    made = state_rows(puts, known.sources, known.base, schema, own)
    truncated = truncation_of(rows, truncates)
    return ReducedSlice(index, keys, made, known.base < 0, known.keep, known.seek, marks=True, truncated=truncated)


def marked(rows: pa.Table, places: np.ndarray, truncation: Truncation) -> pa.Table:
    """Mark the lake rows at ``places`` as deleted by a truncate. Shape: table[N], int64[P] -> table[N]."""
    mask = np.zeros(rows.num_rows, dtype=bool)
    mask[places] = True
    values = (pa.scalar(truncation.lsn, pa.int64()), pa.scalar(truncation.index, pa.int64()), truncation.at)
    for name, value in (*zip(POSITION, values, strict=True), (DELETED, pa.scalar(True))):
        held = column(rows, name)
        rows = with_column(rows, name, chosen(mask, pa.repeat(value, rows.num_rows).cast(held.type), held))
    return rows
