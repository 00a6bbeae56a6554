"""The changelog: every change of a table, appended once, and the rows of its snapshots where they are wanted."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from cdc_core.sink.delta.commit_log import (
    changelog_app,
    guarded_write,
    lake_position,
    reads_app,
    table_version,
    txn_versions,
)
from cdc_core.sink.delta.retry import on_conflict
from cdc_core.sink.delta.target import CHANGELOG_PROPERTIES, META, conform, ensure_table, quoted


def append(
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


def complete_reads(spark: SparkSession, lake: str, changelog: str, slot: str, table: TableId) -> int | None:
    """Append the rows of the snapshot in force as op r, unless they are there; the Delta version made, else None.

    The rows are read from the lake table, whose content is the snapshot until the first merge. So the source is read
    once, and what a crash kept from the changelog is made up for later: this is called after a snapshot's commit, and
    again before anything else may change the lake table (a merge, the next snapshot). The commit carries the snapshot's
    token, and a call that finds it does nothing: a snapshot that came into force has its rows here exactly once, one
    that did not has none. A snapshot that has been merged into since, while its rows were not asked for, stays without.

    A read has ``__commit_lsn`` and ``__lsn`` of the snapshot, ``__tx_index`` -1, no ``__xid``, the snapshot's time,
    nothing unchanged, no ``before``. Positions and merges pass reads by.
    Raises TableError when the changelog cannot hold the rows' types, TransientError after repeated conflicts.
    """
    shown = lake_position(spark, lake, slot, table)
    if shown.token is None or shown.lsn is not None:
        return None
    app, token = reads_app(slot, table), shown.token
    if txn_versions(spark, changelog).get(app, -1) >= token:
        return None
    content = spark.read.format("delta").option("versionAsOf", table_version(spark, lake)).load(lake)
    rows = _reads(content)
    schema = ensure_table(spark, changelog, rows.schema, table, CHANGELOG_PROPERTIES)
    meta = json.dumps({"slot": slot, "reads": token})

    def write() -> None:
        writer = conform(rows, schema).write.format("delta").mode("append").option("userMetadata", meta)
        writer.option("txnAppId", app).option("txnVersion", str(token)).save(changelog)

    return on_conflict(lambda: guarded_write(spark, changelog, f"reads of {table}", write))


def _reads(content: DataFrame) -> DataFrame:
    """Lake rows as change rows."""
    meta = {field.name for field in META}
    after = F.struct(*[F.col(quoted(name)) for name in content.columns if name not in meta])
    shaped = content.select(after.alias("after"), *meta)
    return shaped.select(
        F.lit("r").alias("__op"),
        "__commit_lsn",
        "__tx_index",
        F.col("__commit_lsn").alias("__lsn"),
        F.lit(None).cast("bigint").alias("__xid"),
        "__commit_ts",
        F.array().cast("array<string>").alias("__unchanged"),
        F.lit(None).cast(shaped.schema["after"].dataType).alias("before"),
        "after",
    )
