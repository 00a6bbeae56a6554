"""OPTIMIZE by Delta on Spark."""

from __future__ import annotations

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

SMALL_BYTES = 16 << 20


def compact(spark: SparkSession, lake: str) -> int:
    """Compact the small files of a lake table, without those that are large enough; returns their number.

    A clustered table's files are clustered by its key. Takes a few seconds.
    """
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.optimize.minFileSize", str(SMALL_BYTES))
    session.conf.set("spark.databricks.delta.optimize.maxFileSize", str(4 * SMALL_BYTES))
    done = DeltaTable.forPath(session, lake).optimize().executeCompaction().select("metrics.numFilesRemoved").collect()
    return int(done[0][0]) if done else 0
