"""Changes that a lake table has from its snapshot, so that they are not needed from the stream."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.lake.rows.survey import hidden


@dataclass(frozen=True, slots=True)
class Reached:
    """The end of an append: its last complete transaction, and its last row of a transaction that continues later.

    ``whole`` is None if no transaction ended; ``cut`` (commit LSN, index) is None if no transaction continues.
    """

    whole: int | None
    cut: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ShownByLake:
    """What the lake table has: commits up to ``floor``, and transactions that the pg_snapshot ``visible`` shows."""

    floor: int = 0
    visible: str | None = None

    def has_all(self, raw: pa.RecordBatch) -> bool:
        """Whether the lake table has all of these rows of RAW_SCHEMA."""
        later = raw.filter(pc.greater(raw.column("commit_lsn"), self.floor))
        if not later.num_rows or self.visible is None:
            return not later.num_rows
        return not hidden(pa.table({"__xid": later.column("xid")}), self.visible).any()
