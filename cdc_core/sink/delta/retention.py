"""Old changes leave the changelog: once merged, they are only history."""

from __future__ import annotations

import json

from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from cdc_core.schema.table import TableId
from cdc_core.sink.delta.commit_log import changelog_app, expired_app, table_version, txn_versions
from cdc_core.sink.delta.retry import on_conflict

DAY_US = 86_400_000_000


def expire_changes(
    spark: SparkSession, path: str, slot: str, table: TableId, merged: int | None, now_us: int, days: int
) -> int | None:
    """Delete changes that committed more than ``days`` before ``now_us``; the Delta version made, None for none.

    One commit, which carries the day, so that a second call on the same day leaves the table alone. What stays:

    * changes above ``merged``, the commit LSN that the lake table has reached under its snapshot in force (None where
      nothing has been merged into it yet: all changes stay then);
    * changes above the position in the table's ``txn``: where a batch ended inside a transaction, its rows are what
      tells how far the changelog is.

    Snapshot reads come from the lake, so their age alone counts. That they are there is kept in a ``txn`` too: they do
    not come again. The commit drops whole files where it can and rewrites the others; VACUUM removes them for good.
    Raises TransientError after repeated conflicts with another writer.
    """
    versions = txn_versions(spark, path)
    app, today = expired_app(slot, table), now_us // DAY_US
    if not versions or versions.get(app, -1) >= today:
        return None
    whole = versions.get(changelog_app(slot, table))
    upto = 0 if merged is None or whole is None else min(merged, whole)
    is_old = F.col("__commit_ts") < F.timestamp_micros(F.lit(now_us - days * DAY_US))
    is_done = (F.col("__op") == "r") | (F.col("__commit_lsn") <= upto)
    # Settings are the session's, and tables are cleared side by side.
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.write.txnAppId", app)
    session.conf.set("spark.databricks.delta.write.txnVersion", str(today))
    session.conf.set("spark.databricks.delta.commitInfo.userMetadata", json.dumps({"slot": slot, "retention": days}))
    before = table_version(spark, path)
    on_conflict(lambda: DeltaTable.forPath(session, path).delete(is_old & is_done))
    after = table_version(spark, path)
    return after if after > before else None
