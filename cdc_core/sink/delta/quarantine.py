"""Change rows that a quality rule refused, kept with their reasons in a Delta table beside the lake."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from cdc_core.schema.table import TableId
from cdc_core.sink.delta.commit_log import table_exists
from cdc_core.sink.delta.retry import on_conflict
from cdc_core.sink.delta.target import ensure_table

PROPERTIES = {"delta.enableDeletionVectors": "false"}
QUARANTINED_AT = "__quarantined_at"

_POSITION = ("__commit_lsn", "__tx_index")


def write_quarantine(rows: DataFrame, path: str, table: TableId) -> int:
    """Append refused rows that the quarantine table does not hold yet; how many were new.

    ``rows`` holds the position columns, ``reasons`` array<string> and ``row`` (JSON text). A row is known by its
    position, so a round that is done again after a crash, to another LSN or by other rules, adds each row once. Write
    it before the merge: a crash between the two then repeats the check and finds the rows here.
    """
    spark = rows.sparkSession
    stamped = rows.withColumn(QUARANTINED_AT, F.current_timestamp()).persist()
    try:
        existed = table_exists(spark, path)
        ensure_table(spark, path, stamped.schema, table, PROPERTIES)
        new = stamped
        if existed:
            held = spark.read.format("delta").load(path).select(*_POSITION)
            new = stamped.join(held, list(_POSITION), "left_anti").select(*stamped.columns)
        count = int(new.count())
        if count:
            on_conflict(lambda: new.write.format("delta").mode("append").save(path))
        return count
    finally:
        stamped.unpersist()
