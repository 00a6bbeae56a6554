"""A snapshot's rows become the lake table's whole content, in one commit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from delta.tables import DeltaTable
from pyspark.sql import DataFrame

from cdc_core.errors import InvariantError
from cdc_core.schema.table import TableId
from cdc_core.sink.delta.commit_log import guarded_write, lake_position, snapshot_app
from cdc_core.sink.delta.retry import on_conflict
from cdc_core.sink.delta.target import LAKE_PROPERTIES, prepare_overwrite


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """The commit that made the snapshot the table's content."""

    version: int
    rows: int


def write_snapshot(
    rows: DataFrame,
    path: str,
    slot: str,
    table: TableId,
    *,
    token: int,
    facts: Mapping[str, str | int] | None = None,
    properties: Mapping[str, str] | None = None,
) -> SnapshotFacts:
    """Replace the lake table's content and schema by ``rows``, and put ``token`` in force, in one commit.

    ``rows`` holds the source's columns, ``__rescued``, ``__commit_lsn``, ``__tx_index`` and ``__commit_ts``. Their
    ``__commit_lsn`` must not be above that of any change that the snapshot does not show. ``token`` must be above the
    one in force: that also makes the merges of the former snapshot forgotten. ``facts`` go to the commit's metadata.
    Raises InvariantError for a token that is not above, TableError for names that Delta cannot hold.
    """
    spark = rows.sparkSession
    in_force = lake_position(spark, path, slot, table).token
    if in_force is not None and token <= in_force:
        raise InvariantError(f"Snapshot {token} of {table} is not newer than {in_force}, which is in force.")
    prepare_overwrite(spark, path, rows.schema, table, {**LAKE_PROPERTIES, **(properties or {})})

    def write() -> None:
        (
            rows.write.format("delta")
            .mode("overwrite")
            .option("overwriteSchema", "true")
            .option("txnAppId", snapshot_app(slot, table))
            .option("txnVersion", str(token))
            .option("userMetadata", json.dumps({"slot": slot, "snapshot": token, **(facts or {})}))
            .save(path)
        )

    version = on_conflict(lambda: guarded_write(spark, path, f"snapshot of {table}", write))
    metrics = written(spark.newSession(), path, version)
    return SnapshotFacts(version, metrics.get("numOutputRows", 0))


def written(spark: object, path: str, version: int) -> dict[str, int]:
    """Delta's operation metrics of one commit."""
    history = DeltaTable.forPath(spark, path).history(1).select("version", "operationMetrics").collect()
    found = next((row["operationMetrics"] for row in history if row["version"] == version), None) or {}
    return {name: int(number) for name, number in found.items() if number.isdigit()}
