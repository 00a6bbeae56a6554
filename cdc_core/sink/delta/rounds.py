"""Which Delta version of each table shows which LSN of the source: one consistent cut a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from cdc_core.sink.delta.append import on_conflict
from cdc_core.sink.delta.shape import lake_properties
from cdc_core.sink.delta.table import DeltaTable
from cdc_core.sink.delta.upkeep import tidy

_SCHEMA = pa.schema(
    [
        ("round_lsn", pa.int64()),
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("delta_version", pa.int64()),
        ("recorded_at", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True, slots=True)
class RecordedVersion:
    """At ``lsn`` of the source, ``table`` is what its Delta version ``version`` shows."""

    lsn: Lsn
    table: TableId
    version: int
    recorded_at: datetime


def record_round(
    path: str, lsn: int, versions: Mapping[TableId, int], history_minutes: int, opened: DeltaTable | None = None
) -> DeltaTable:
    """Write down a finished round; the table of rounds. A round written twice (a crash between) reads as one."""
    rounds = opened or DeltaTable.open(path) or DeltaTable.create(path, _SCHEMA, lake_properties(history_minutes))
    if versions:
        tables = list(versions)
        rows = pa.table(
            {
                "round_lsn": pa.array([int(lsn)] * len(tables), pa.int64()),
                "schema_name": [table.schema for table in tables],
                "table_name": [table.table for table in tables],
                "delta_version": pa.array([versions[table] for table in tables], pa.int64()),
                "recorded_at": pa.array([datetime.now(UTC)] * len(tables), pa.timestamp("us", tz="UTC")),
            },
            schema=_SCHEMA,
        )
        since = rounds.version
        on_conflict(lambda: rounds.commit([rounds.write(rows)]), rounds)
        tidy(rounds, since, history_minutes)
    return rounds


def read_rounds(path: str, limit: int = 1000) -> list[RecordedVersion]:
    """The recorded versions of the newest rounds, newest first, at most ``limit`` of them; empty before the first."""
    rounds = DeltaTable.open(path)
    if rounds is None or not rounds.files:
        return []
    keys = ["round_lsn", "schema_name", "table_name"]
    rows = pa.concat_tables([rounds.read(file) for file in rounds.files])
    newest = rows.group_by(keys).aggregate([("delta_version", "max"), ("recorded_at", "max")])
    order = [("round_lsn", "descending"), ("schema_name", "ascending"), ("table_name", "ascending")]
    # row-wise: a few rows a round
    return [
        RecordedVersion(
            Lsn(row["round_lsn"]),
            TableId(row["schema_name"], row["table_name"]),
            row["delta_version_max"],
            row["recorded_at_max"],
        )
        for row in newest.sort_by(order).slice(0, limit).to_pylist()
    ]
