"""Which transactions each snapshot of each table shows.

Written before a snapshot's rows are committed; the lake table's own commit then says, by its token, which of these
entries is in force. An entry without a commit (a crash in between) is never looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812

from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from cdc_core.sink.delta.commit_log import table_exists
from cdc_core.sink.delta.retry import on_conflict

_SCHEMA = T.StructType(
    [
        T.StructField("schema_name", T.StringType()),
        T.StructField("table_name", T.StringType()),
        T.StructField("token", T.LongType()),
        T.StructField("lsn", T.LongType()),
        T.StructField("visible", T.StringType()),
        T.StructField("recorded_at", T.TimestampType()),
    ]
)


@dataclass(frozen=True, slots=True)
class TakenSnapshot:
    """A snapshot of one table. ``visible`` is pg_current_snapshot()'s text; what ends beyond ``lsn`` is invisible."""

    token: int
    lsn: Lsn
    visible: str


def record_snapshots(spark: SparkSession, path: str, taken: Mapping[TableId, TakenSnapshot]) -> None:
    """Write down snapshots that are about to be committed, one entry a table."""
    now = datetime.now(UTC)
    rows = [(t.schema, t.table, one.token, int(one.lsn), one.visible, now) for t, one in taken.items()]
    frame = spark.createDataFrame(rows, _SCHEMA).coalesce(1)
    on_conflict(lambda: frame.write.format("delta").mode("append").save(path))


def read_snapshots(spark: SparkSession, path: str) -> dict[tuple[TableId, int], TakenSnapshot]:
    """Every entry by table and token."""
    if not table_exists(spark, path):
        return {}
    rows = spark.read.format("delta").load(path).collect()
    return {
        (TableId(row["schema_name"], row["table_name"]), row["token"]): TakenSnapshot(
            row["token"], Lsn(row["lsn"]), row["visible"]
        )
        for row in rows
    }
