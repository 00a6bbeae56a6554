"""The changelog: every change of a table, appended once."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence

from pyspark.sql import DataFrame

from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from cdc_core.sink.delta.commit_log import changelog_app, guarded_write, txn_versions
from cdc_core.sink.delta.retry import on_conflict
from cdc_core.sink.delta.target import CHANGELOG_PROPERTIES, conform, ensure_table


def append(  # noqa: PLR0917
    rows: DataFrame | Sequence[DataFrame],
    path: str,
    slot: str,
    table: TableId,
    complete_to: int | None,
    position: int | None = None,
) -> int:
    """Append change rows that lie beyond the table's position, with the position they reach; the Delta version made.

    Several frames (one a version of the table) become one commit. ``complete_to`` is the commit LSN of the last
    transaction that is whole among these rows, None when there is none (the batch ended inside one). ``position`` is
    the commit LSN that the table has reached, whole or not, where the caller knows it; else it is looked up. The commit
    carries ``complete_to`` as its ``txn`` version where that is above; what lies beyond the stored version is found in
    the data (``changelog_position``). Nothing is skipped in silence: should Delta take the append for a repetition,
    InvariantError is raised, for the caller has dropped what was there.
    Raises TableError when the table cannot hold the rows' types, TransientError after repeated conflicts.
    """
    frames = [rows] if isinstance(rows, DataFrame) else list(rows)
    spark, app = frames[0].sparkSession, changelog_app(slot, table)
    schema = frames[0].schema
    for frame in frames:
        schema = ensure_table(spark, path, frame.schema, table, CHANGELOG_PROPERTIES)
    ready = functools.reduce(DataFrame.unionByName, [conform(frame, schema) for frame in frames])
    stored = txn_versions(spark, path).get(app) if position is None else position
    carries = complete_to is not None and (stored is None or complete_to > stored)
    meta = {"slot": slot, "complete_to": str(Lsn(complete_to)) if complete_to is not None else None}

    def write() -> None:
        writer = ready.write.format("delta").mode("append").option("userMetadata", json.dumps(meta))
        if carries:
            writer = writer.option("txnAppId", app).option("txnVersion", str(complete_to))
        writer.save(path)

    return on_conflict(lambda: guarded_write(spark, path, f"append to the changelog of {table}", write))
