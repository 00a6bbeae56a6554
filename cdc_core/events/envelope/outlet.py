"""What records pass on their way out: the transforms and formats of a connector.

This package creates records; transforms and formats are packages above it. A context without an outlet writes keys,
values and headers as JSON with schemas, directly from the columns, without typed batches in between.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from cdc_core.events.envelope.batch import EventBatch


class Outlet(Protocol):
    """Transforms and writes batches; ``cdc_core.events.format.outlet`` implements it."""

    def records(self, batch: EventBatch) -> pa.Table:
        """Return the records that result, as RECORDS: fewer, more or none."""

    def lines(self, records: pa.Table) -> list[str]:
        """Return one JSON line per record, without a line end."""

    def last_lines(self) -> list[str]:
        """Return lines to write at the end of a run: the Avro schemas that its records refer to."""
