"""Which Delta version of each table shows which LSN of the source: one consistent cut a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from cdc_core.sink.delta.commit_log import table_exists
from cdc_core.sink.delta.retry import on_conflict

_SCHEMA = T.StructType(
    [
        T.StructField("round_lsn", T.LongType()),
        T.StructField("schema_name", T.StringType()),
        T.StructField("table_name", T.StringType()),
        T.StructField("delta_version", T.LongType()),
        T.StructField("recorded_at", T.TimestampType()),
    ]
)


@dataclass(frozen=True, slots=True)
class RecordedVersion:
    """At ``lsn`` of the source, ``table`` is what its Delta version ``version`` shows."""

    lsn: Lsn
    table: TableId
    version: int
    recorded_at: datetime


def record_round(spark: SparkSession, path: str, lsn: int, versions: Mapping[TableId, int]) -> None:
    """Write down a finished round. A round written twice (a crash between) reads as one."""
    if not versions:
        return
    now = datetime.now(UTC)
    rows = [(int(lsn), table.schema, table.table, version, now) for table, version in versions.items()]
    frame = spark.createDataFrame(rows, _SCHEMA).coalesce(1)
    on_conflict(lambda: frame.write.format("delta").mode("append").save(path))


def read_rounds(spark: SparkSession, path: str, limit: int = 1000) -> list[RecordedVersion]:
    """The recorded versions of the newest rounds, newest first, at most ``limit`` of them; empty before the first."""
    if not table_exists(spark, path):
        return []
    keys = ("round_lsn", "schema_name", "table_name")
    newest = (
        spark.read.format("delta")
        .load(path)
        .groupBy(*keys)
        .agg(F.max("delta_version").alias("version"), F.max("recorded_at").alias("at"))
    )
    rows = newest.orderBy(F.col("round_lsn").desc(), "schema_name", "table_name").limit(limit).collect()
    # row-wise: a few rows a round
    return [
        RecordedVersion(
            Lsn(row["round_lsn"]), TableId(row["schema_name"], row["table_name"]), row["version"], row["at"]
        )
        for row in rows
    ]
