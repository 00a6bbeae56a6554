"""The progress of incremental snapshots into a lake: one text, replaced as a whole, in a Delta table of the lake.

It is written before the slot is confirmed past a signal, and before the rows of a chunk are written. A commit removes
the row of the previous one, so if there are two writers the later one fails.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from cdc_core.lake.delta.log_table import all_rows, log_table
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.compaction import maintain_after
from cdc_core.lake.schema.lake_schema import lake_properties

_SCHEMA = pa.schema([("progress", pa.string()), ("recorded_at", pa.timestamp("us", tz="UTC"))])


class ProgressLog:
    """The log of one connector; created by its first ``write``. For one thread, and for the only active run."""

    def __init__(self, path: str, history_minutes: int) -> None:
        self._path = path
        self._history_minutes = history_minutes
        self._opened: DeltaTable | None = None

    def read(self) -> str:
        """Return the text written last, empty if there is none. Raises LakeError if the table cannot be read."""
        self._opened = DeltaTable.open(self._path)
        rows = all_rows(self._opened, _SCHEMA)
        return str(rows.column("progress")[-1].as_py()) if rows.num_rows else ""

    def write(self, progress: str) -> None:
        """Replace the text. Raises CommitConflictError if another run has written since ``read``."""
        log = log_table(self._opened, self._path, _SCHEMA, lake_properties(self._history_minutes))
        self._opened = log
        rows = pa.Table.from_pylist([{"progress": progress, "recorded_at": datetime.now(UTC)}], schema=_SCHEMA)
        since = log.version
        log.commit([log.write(rows)], log.files)
        maintain_after(log, since, self._history_minutes)
