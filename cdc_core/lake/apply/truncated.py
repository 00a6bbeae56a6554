"""The rows that a truncate ends in a table that keeps rows: delete modes soft and history.

Changes of the truncate's slice end the rows of their own keys (``lake/reduce/row_states``). Every other row that the
source had then is ended here, file by file and a few megabytes at a time: a truncate takes as much memory for a large
table as for a small one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.lake.apply.ways import among_live, live_places
from cdc_core.lake.delete_columns import POSITION, is_live, live_column, mode_of
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.candidates import Content
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.reduce.history import closed
from cdc_core.lake.reduce.row_states import Truncation
from cdc_core.lake.reduce.soft import marked
from cdc_core.lake.rows.images import column


@dataclass(frozen=True, slots=True)
class EndedRows:
    """The rows of a ``file`` that a truncate ``at`` a position ends. Shape: places int64[P], ascending, in the file"""

    file: DataFile
    at: Truncation
    places: np.ndarray

    @classmethod
    def of(cls, content: Content, file: DataFile, at: Truncation, changed: np.ndarray, *, guarded: bool) -> EndedRows:
        """Find the rows, all but those at the places ``changed``, which the slice's changes end.

        ``guarded``: a row of the truncate's own or a later position stays. Shape: int64[C]
        """
        live = live_column(mode_of(content.schema.names))
        assert live is not None, "in mode hard a truncate replaces the table's files"
        rows = content.read(file, [*POSITION[:2], live])
        ends = is_live(rows)
        if guarded:
            lsn, index = (column(rows, name).fill_null(-1).to_numpy(zero_copy_only=False) for name in POSITION[:2])
            ends &= (lsn < at.lsn) | ((lsn == at.lsn) & (index < at.index))
        places = live_places(content, file, np.flatnonzero(ends))
        return cls(file, at, np.setdiff1d(places, changed, assume_unique=True))

    def states(self, content: Content) -> Iterator[pa.Table]:
        """Yield what the rows are after it, with the row ids that they have, in ``content.tracked_schema``."""
        schema, start = content.tracked_schema, 0
        places = among_live(content, self.file, self.places)
        for rows in content.batches(self.file, schema.names):
            low, high = np.searchsorted(places, [start, start + rows.num_rows]).tolist()
            some = rows if high - low == rows.num_rows else rows.take(pa.array(places[low:high] - start))
            start += rows.num_rows
            del rows  # a row may be large, and would stay in memory while the next one is read
            if high > low:
                yield self._ended(some, content)

    def _ended(self, rows: pa.Table, content: Content) -> pa.Table:
        if len(content.tracked_schema) > len(content.schema):
            # The commit gives them its version.
            rows = conform(rows.select(content.tracked_schema.names[: len(content.schema) + 1]), content.tracked_schema)
        if mode_of(content.schema.names) is DeleteMode.HISTORY:
            return closed(rows, self.at)
        return marked(rows, np.arange(rows.num_rows), self.at)
