"""Delete mode soft: the last state of each key, where a row that no longer exists keeps its last values.

The lake has one row per key, with ``__deleted`` if the source has none now. A row that changed its key stays at its old
key as deleted, with the values that it had there. The result does not depend on how changes are divided into slices: a
row that was inserted and deleted within one slice is stored as deleted, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cdc_core.lake.delete_columns import DELETED, POSITION, with_column
from cdc_core.lake.reduce.expected_rows import ExpectedRows
from cdc_core.lake.reduce.latest import ReducedSlice, SliceEvents, state_rows
from cdc_core.lake.reduce.row_states import Truncation, known_states, with_truncates
from cdc_core.lake.rows.images import chosen, column


def reduce_soft(rows: pa.Table, key: Sequence[str], schema: pa.Schema) -> ReducedSlice:
    """Return the last state of each key. ``rows`` are change rows in any order, ``schema`` is the lake's.

    A key without an image in the slice keeps all of the lake row's columns and is only marked. Of rows whose keys are
    not in the slice nothing is said here: a truncate marks them, too (``lake/apply/truncated``).
    """
    events = SliceEvents.of(rows, key, schema)
    key_events = with_truncates(events.key_events, events.keys.num_rows)
    last = key_events.last(events.keys.num_rows)
    known = known_states(key_events, last, events.upserts.unsent, events.image_names)
    own = events.rows.select(list(POSITION)).take(pa.array(key_events.row[last]))
    own = own.append_column(DELETED, pa.array(key_events.deleted[last]))
    made = state_rows(events.upserts, known.sources, known.base, schema, own)
    expected = ExpectedRows.of(key_events, events.rows, events.truncates, events.keys.num_rows)
    return ReducedSlice(events.index, events.keys, made, known.base < 0, known.keep, known.seek, expected, True)


def marked(rows: pa.Table, places: np.ndarray, truncation: Truncation) -> pa.Table:
    """Mark the lake rows at ``places`` as deleted by a truncate. Shape: table[N], int64[P] -> table[N]."""
    mask = np.zeros(rows.num_rows, dtype=bool)
    mask[places] = True
    values = (pa.scalar(truncation.lsn, pa.int64()), pa.scalar(truncation.index, pa.int64()), truncation.at)
    for name, value in (*zip(POSITION, values, strict=True), (DELETED, pa.scalar(True))):
        former = column(rows, name)
        rows = with_column(rows, name, chosen(mask, pa.repeat(value, rows.num_rows).cast(former.type), former))
    return rows
