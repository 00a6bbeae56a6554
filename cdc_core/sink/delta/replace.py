"""A snapshot's rows become the lake table's whole content, in one commit.

The rows come from many tasks, each of which writes its own files (``write_rows``); the commit names them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cdc_core.errors import InvariantError
from cdc_core.schema.table import TableId
from cdc_core.sink.delta.append import on_conflict
from cdc_core.sink.delta.conform import plain_schema
from cdc_core.sink.delta.features import features_on
from cdc_core.sink.delta.positions import lake_position, merge_app, shape_app, snapshot_app
from cdc_core.sink.delta.shape import check_names, lake_properties, spread
from cdc_core.sink.delta.table import DataFile, DeltaTable

_FILE_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """The commit that made the snapshot the table's content."""

    version: int
    rows: int


def prepare(path: str, schema: pa.Schema, table: TableId, history_minutes: int) -> DeltaTable:
    """The lake table, made empty where it is missing; a table that exists keeps its content and schema until then.

    Raises TableError for names that Delta cannot tell apart.
    """
    check_names(schema, table)
    properties = spread(lake_properties(history_minutes), path)
    return DeltaTable.open(path) or DeltaTable.create(path, plain_schema(schema), properties)


def write_rows(lake: DeltaTable, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[DataFile]:
    """Write lake rows into new files of about a million rows; nothing knows of them until ``commit_snapshot``."""
    return lake.write_stream(batches, plain_schema(schema), _FILE_ROWS, "snapshot")


def commit_snapshot(
    lake: DeltaTable,
    files: Sequence[DataFile],
    schema: pa.Schema,
    slot: str,
    table: TableId,
    *,
    token: int,
    shape: int = 0,
    facts: Mapping[str, str | int] | None = None,
    spark: Any = None,
) -> SnapshotFacts:
    """Replace the lake table's content and schema by ``files``, and put ``token`` in force, in one commit.

    The rows' ``__commit_lsn`` must not be above that of any change that the snapshot does not show. ``token`` must be
    above the one in force: that also makes the merges of the former snapshot forgotten. ``shape`` is the number of the
    table's version that the rows were read under (``shape_log``), 0 for none. ``facts`` go to the commit's
    metadata. What was committed to the table since it was opened is replaced too. A table with features that delta-rs
    does not write takes the rows through ``spark``, and ``files`` are removed after.
    Raises InvariantError for a token that is not above, TransientError where other writers were faster eight times.
    """
    content = plain_schema(schema)

    def attempt() -> int:
        shown = lake_position(lake, slot, table)
        if shown.token is not None and token <= shown.token:
            raise InvariantError(f"Snapshot {token} of {table} is not newer than {shown.token}, which is in force.")
        # The former merges' id is named as it stands: so a merge into the former content conflicts, whichever of the
        # two commits is first. Else its rows would stay beside the snapshot's.
        txns = {merge_app(slot, table, shown.token or 0): shown.lsn or 0, snapshot_app(slot, table): token}
        if shape:
            txns[shape_app(slot, table)] = shape
        meta = {"slot": slot, "snapshot": token, **(facts or {})}
        if features_on(lake):
            return _replace_by_spark(spark, lake, files, content, txns, meta)
        return lake.commit(files, txns=txns, metadata=meta, schema=content, replace=True)

    lake.refresh()
    version = on_conflict(attempt, lake)
    return SnapshotFacts(version, sum(file.rows for file in files))


def _replace_by_spark(
    spark: Any,
    lake: DeltaTable,
    files: Sequence[DataFile],
    schema: pa.Schema,
    txns: Mapping[str, int],
    metadata: Mapping[str, str | int],
) -> int:
    # Loaded only where a table needs it: PySpark costs a second.
    from cdc_core.sink.delta.spark_evolve import replace_by_spark

    root = lake.path.rstrip("/")
    version = replace_by_spark(spark, lake, [f"{root}/{file.path}" for file in files], schema, txns, metadata)
    lake.discard(files)
    return version
