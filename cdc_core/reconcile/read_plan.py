"""How much of the source a comparison reads at once: a range that has a row which differs is read again."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.lake import Target
from cdc_core.postgres import Source, TableSize
from cdc_core.snapshot import TableSelects

SAMPLE_ROWS = 10_000
"""The rows of a range of which a sample is taken."""

_ROWS_PER_RANGE = 250_000


@dataclass(frozen=True, slots=True)
class StatementPlan:
    """Plans how tables are read. ``rows_per_second`` is the bound of the comparison, 0 for none.

    ``is_sample``: only some ranges of a table are read.
    """

    source: Source
    rows_per_second: int
    is_sample: bool = False

    def of(self, target: Target, size: TableSize | None = None) -> TableSelects:
        """Return how a table is read. ``size`` is the server's; None: some rows are read by their keys, so ranges need
        not be of equal size. Raises SourceError or TransientError.
        """
        most = SAMPLE_ROWS if self.is_sample else _ROWS_PER_RANGE
        if self.rows_per_second:
            most = min(most, max(SAMPLE_ROWS, self.rows_per_second))
        return TableSelects.of(self.source, target.table, target.columns, size, most)
