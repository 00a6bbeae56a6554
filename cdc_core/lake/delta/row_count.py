"""The number of rows of a Delta table: from its log, without a JVM and without reading data files, or counted.

For a lake table whose delete mode keeps rows, the number of rows that the source has; this reads one column of its
files.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from cdc_core.lake.delete_columns import is_live, live_column, mode_of
from cdc_core.lake.delta.table import DeltaTable


def row_count(path: str, storage: Mapping[str, str] | None = None) -> int | None:
    """Return the rows of the newest version of the table at ``path``.

    None if the log does not contain it: no table, a storage or feature unknown to delta-rs, files without statistics.
    """
    try:
        table = DeltaTable.open(path, storage)
        if table is None:
            return None
        column = live_column(mode_of(table.schema.names))
        if column is not None:
            files = [file for file in table.files if not file.is_history]
            return sum(int(np.count_nonzero(is_live(table.read(file, [column])))) for file in files)
        counts = pa.chunked_array(table.raw(to_change=False).get_add_actions().column("num_records"))
        if counts.null_count:
            return None
        return held_rows(table)
    except Exception:
        # delta-rs and each storage have different errors, and an unavailable count is simply not shown.
        return None


def held_rows(table: DeltaTable) -> int:
    """Return the number of rows in a table's files by their statistics, without rows marked as deleted."""
    return sum(file.live for file in table.files)
