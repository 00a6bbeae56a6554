"""How much memory the values take that changes leave out (TOAST), and that are read from the lake's rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.rows.images import column

# Fewer, of rows that are small in the files, are not counted: most slices have a few such changes, and the footer of a
# file would be read for them.
_FEWEST, _SMALL_BYTES = 1_000, 4 << 20


def leaving_out(rows: pa.Table) -> int:
    """Count the change rows that leave values out."""
    lengths = pc.fill_null(pc.list_value_length(column(rows, "__unchanged")), 0)
    return int(np.count_nonzero(lengths.to_numpy(zero_copy_only=False)))


def kept_bytes(lake: DeltaTable, count: int, fewest: int = _FEWEST) -> int:
    """Estimate the bytes in memory of the lake rows of so many changes, by the file with the largest rows."""
    if count < 2:
        return 0
    widest = max(lake.files, key=lambda file: file.size / max(1, file.rows), default=None)
    if widest is None or (count < fewest and count * widest.size < _SMALL_BYTES * max(1, widest.rows)):
        return 0
    return count * lake.bytes_in_memory(widest) // max(1, lake.row_count(widest))
