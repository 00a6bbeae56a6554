"""An outlet that keeps the batches it gets: one run of the stream serves any number of transforms and formats."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from cdc_core.events.envelope.batch import EventBatch
from cdc_core.events.envelope.record import RECORDS, in_order
from cdc_core.events.format.outlet import EventOutlet


@dataclass
class Tee:
    """``groups`` are the batches whose records are written together, in the order of (seq, sub)."""

    groups: list[list[EventBatch]] = field(default_factory=lambda: [[]])

    def records(self, batch: EventBatch) -> pa.Table:
        self.groups[-1].append(batch)
        return RECORDS.empty_table()

    def lines(self, records: pa.Table) -> list[str]:
        self.groups.append([])
        return []

    def last_lines(self) -> list[str]:
        return []

    def through(self, outlet: EventOutlet) -> pa.Table:
        """What an outlet makes of all that was kept."""
        made = [in_order([outlet.records(batch) for batch in group]) for group in self.groups if group]
        return pa.concat_tables(made) if made else RECORDS.empty_table()
