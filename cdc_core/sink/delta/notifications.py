"""Notifications of snapshots as rows of a Delta table: the channel ``sink``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from cdc_core.sink.delta.append import on_conflict
from cdc_core.sink.delta.compaction import tidy
from cdc_core.sink.delta.shape import lake_properties
from cdc_core.sink.delta.table import DeltaTable

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


def record_notifications(
    path: str, rows: Sequence[NotificationRow], history_minutes: int, opened: DeltaTable | None = None
) -> DeltaTable:
    """Append the rows in one commit; returns the table, which is created if it does not exist.

    Raises TransientError after eight conflicts with other writers, and the errors of the file system.
    """
    table = opened or DeltaTable.open(path) or DeltaTable.create(path, _SCHEMA, lake_properties(history_minutes))
    if rows:
        columns = {
            "id": [row.id for row in rows],
            "aggregate_type": [row.aggregate_type for row in rows],
            "type": [row.type for row in rows],
            "additional_data": [list(row.additional_data.items()) for row in rows],
            "timestamp": [row.timestamp.astimezone(UTC) for row in rows],
        }
        made = pa.table(columns, schema=_SCHEMA)
        since = table.version
        on_conflict(lambda: table.commit([table.write(made)]), table)
        tidy(table, since, history_minutes)
    return table


def read_notifications(path: str, limit: int = 1000) -> list[NotificationRow]:
    """Return at most ``limit`` notifications, newest first; empty if there are none."""
    table = DeltaTable.open(path)
    if table is None or not table.files:
        return []
    rows = pa.concat_tables([table.read(file) for file in table.files]).sort_by([("timestamp", "descending")])
    # row-wise: a few rows per snapshot
    return [
        NotificationRow(row["id"], row["aggregate_type"], row["type"], dict(row["additional_data"]), row["timestamp"])
        for row in rows.slice(0, limit).to_pylist()
    ]
