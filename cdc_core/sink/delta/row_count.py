"""How many rows a Delta table has: told by its log, without a JVM and without a look at data files, or counted.

Of a lake table whose delete mode keeps rows, those that the source has; that one column of its files is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.sink.delta.delete_mode import is_live, live_column, mode_of
from cdc_core.sink.delta.table import DeltaTable


def row_count(path: str, storage: Mapping[str, str] | None = None) -> int | None:
    """Rows of the newest version of the table at ``path``.

    None where the log does not tell: no table, a storage or feature unknown to delta-rs, files without statistics.
    """
    try:
        table = DeltaTable.open(path, storage)
        if table is None:
            return None
        column = live_column(mode_of(table.schema.names))
        if column is not None:
            files = [file for file in table.files if not file.is_history]
            return sum(int(np.count_nonzero(is_live(table.read(file, [column])))) for file in files)
        counts = pa.chunked_array(table.raw().get_add_actions().column("num_records"))
        if counts.null_count:
            return None
        rows = int(pc.sum(counts).as_py() or 0)
        if "deletionVectors" not in table.features:
            return rows
        # A file's statistics count the rows that its deletion vector takes out, too.
        kept = pa.table(table.raw().deletion_vectors()).column("selection_vector").combine_chunks().flatten()
    except Exception:
        # delta-rs and each storage have errors of their own, and a count that cannot be had is only not shown.
        return None
    return rows - (len(kept) - int(pc.sum(kept).as_py() or 0))


def counted_rows(spark: Any, path: str) -> int:
    """The same, counted by Spark. Raises what Spark raises where there is no table."""
    return int(spark.read.format("delta").load(path).count())
