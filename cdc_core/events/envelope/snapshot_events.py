"""Converts rows of a snapshot to read events, with the marker of each row's position in the snapshot.

Only the next row shows whether a row was its table's last, and only the end whether it was the snapshot's. So one row
is always held back. If several markers apply, the precedence is: last, first, last_in_data_collection,
first_in_data_collection, true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core import clock
from cdc_core.decode import RawColumns
from cdc_core.events.envelope.record import RECORDS
from cdc_core.events.envelope.row import rows_of
from cdc_core.events.envelope.table_events import EventSnapshot, TableEvents

# Rows rendered at once.
CHUNK_ROWS = 8192


@dataclass(frozen=True, slots=True)
class _TableRecords:
    events: TableEvents
    row: RawColumns
    facts: EventSnapshot
    opens_snapshot: bool
    opens_table: bool


class SnapshotRecords:
    """Creates the records of one snapshot: ``table`` for each table in order, then ``finish`` once."""

    def __init__(self) -> None:
        self._kept: _TableRecords | None = None
        self._started = False

    def table(self, events: TableEvents, batches: Iterable[RawColumns], facts: EventSnapshot) -> Iterator[pa.Table]:
        """Yield RECORDS of one table's rows, except its last row, which the next table or ``finish`` returns."""
        opens, self._started = not self._started, True
        fresh = True
        for batch in batches:
            for first in range(0, len(batch), CHUNK_ROWS):
                last = min(first + CHUNK_ROWS, len(batch))
                yield self._rows(events, _slice(batch, first, last), facts, fresh, opens and fresh)
                fresh = False

    def finish(self) -> pa.Table:
        """Return the very last row, as RECORDS; nothing for a snapshot without rows."""
        return pa.concat_tables([RECORDS.empty_table(), *self._release("last")])

    def _rows(
        self, events: TableEvents, batch: RawColumns, facts: EventSnapshot, fresh: bool, opens_snapshot: bool
    ) -> pa.Table:
        out = self._release("last_in_data_collection" if fresh else "true")
        count = len(batch)
        if count > 1:
            markers = ["true"] * (count - 1)
            if fresh:
                markers[0] = "first" if opens_snapshot else "first_in_data_collection"
            out.append(_read(events, _slice(batch, 0, count - 1), markers, facts))
        alone = count == 1
        row = _slice(batch, count - 1, count)
        self._kept = _TableRecords(events, row, facts, opens_snapshot and alone, fresh and alone)
        return pa.concat_tables([RECORDS.empty_table(), *out])

    def _release(self, marker: str) -> list[pa.Table]:
        kept, self._kept = self._kept, None
        if kept is None:
            return []
        if marker != "last" and kept.opens_snapshot:
            marker = "first"
        elif marker == "true" and kept.opens_table:
            marker = "first_in_data_collection"
        return [_read(kept.events, kept.row, [marker], kept.facts)]


def _read(events: TableEvents, columns: RawColumns, markers: list[str], facts: EventSnapshot) -> pa.Table:
    return events.reads(columns, pa.array(markers, type=pa.large_string()), facts, clock.now_ns())


def _slice(columns: RawColumns, first: int, last: int) -> RawColumns:
    return rows_of(columns, np.arange(first, last))
