"""Which Kafka topic has the events of which lake table, as rows of a Delta table: for readers of both."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pyarrow as pa

from cdc_core.lake.delta.log_table import all_rows, append_rows, log_table
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.schema.lake_schema import lake_properties
from cdc_core.schema import TableId

# One row for each pair that was ever written: a topic that is renamed keeps the events that it has.
_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("path", pa.string()),
        ("since", pa.timestamp("us", tz="UTC")),
    ]
)


def record_topics(path: str, topics: Mapping[TableId, str], paths: Mapping[TableId, str], history_minutes: int) -> None:
    """Append the pairs that are new, in one commit. ``paths`` are the lake tables' folders.

    Raises TransientError after repeated conflicts with other writers.
    """
    log = DeltaTable.open(path)
    # row-wise: once per captured table and start
    known = {(row["topic"], row["schema"], row["table"], row["path"]) for row in all_rows(log, _SCHEMA).to_pylist()}
    now = datetime.now(UTC)
    rows = [
        {"topic": topic, "schema": table.schema, "table": table.table, "path": str(paths[table]), "since": now}
        for table, topic in topics.items()
        if (topic, table.schema, table.table, str(paths[table])) not in known
    ]
    if rows:
        append_rows(log_table(log, path, _SCHEMA, lake_properties(history_minutes)), rows, _SCHEMA)
