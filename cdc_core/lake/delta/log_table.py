"""Small Delta tables of wal2lake's own: a few rows a commit, read as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.table import DeltaTable


def log_table(known: DeltaTable | None, path: str, schema: pa.Schema, properties: Mapping[str, str]) -> DeltaTable:
    """``known``, or the table at ``path``, which is created where it is missing.

    An earlier release may have made it: columns that only ``schema`` has are added.
    """
    log = known or DeltaTable.open(path)
    if log is None:
        return DeltaTable.create(path, schema, properties)
    if not set(schema.names) <= set(log.schema.names):
        log.widen(schema)
    return log


def append_rows(log: DeltaTable, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Append rows in one commit. Raises TransientError after repeated conflicts with other writers."""
    made = pa.Table.from_pylist(rows, schema=schema)
    on_conflict(lambda: log.commit([log.write(made)]), log)


def all_rows(log: DeltaTable | None, schema: pa.Schema) -> pa.Table:
    """Every row of the loaded version in the columns of ``schema``; no rows where there is no table."""
    if log is None or not log.files:
        return schema.empty_table()
    return pa.concat_tables([conform(log.read(file), schema) for file in log.files])
