"""Notifications of snapshots as rows of a Delta table: the channel ``sink``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from cdc_core.lake.delta.log_table import append_rows, log_table
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.compaction import maintain_after
from cdc_core.lake.schema.lake_schema import lake_properties

# The columns are the fields of Debezium's notification record, with a timestamp type.
_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("aggregate_type", pa.string()),
        ("type", pa.string()),
        ("additional_data", pa.map_(pa.string(), pa.string())),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True, slots=True)
class NotificationRow:
    """One notification as it is stored. ``timestamp`` is in UTC."""

    id: str
    aggregate_type: str
    type: str
    additional_data: Mapping[str, str]
    timestamp: datetime


class NotificationLog:
    """The table of notifications at ``path``. For one thread."""

    def __init__(self, path: str, history_minutes: int) -> None:
        self.path = path
        self._history_minutes = history_minutes
        self._opened: DeltaTable | None = None

    def add(self, rows: Sequence[NotificationRow]) -> None:
        """Append rows in one commit; the table is created if it does not exist.

        Raises TransientError after eight conflicts with other writers, and the errors of the file system; the table is
        opened again after an error.
        """
        opened, self._opened = self._opened, None
        table = log_table(opened, self.path, _SCHEMA, lake_properties(self._history_minutes))
        if rows:
            since = table.version
            append_rows(table, [_plain(row) for row in rows], _SCHEMA)
            maintain_after(table, since, self._history_minutes)
        self._opened = table


def _plain(row: NotificationRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "aggregate_type": row.aggregate_type,
        "type": row.type,
        "additional_data": list(row.additional_data.items()),
        "timestamp": row.timestamp.astimezone(UTC),
    }
