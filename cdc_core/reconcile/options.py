"""How lake tables are compared with their source."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.option import at_least, number_in, option


@dataclass(frozen=True, slots=True)
class ReconcileOptions:
    """The options of ``wal2lake reconcile``."""

    reconcile_rows_per_second: int = option(
        "wal2lake.reconcile.rows.per.second",
        0,
        "Maximum number of rows that a comparison reads from the source in a second, 0 for no limit.",
        parse=at_least(0),
    )
    reconcile_wait_seconds: float = option(
        "wal2lake.reconcile.wait.seconds",
        60.0,
        "Longest wait of a comparison for a running stream to store the changes up to the LSN at which the source was "
        "read. It is needed only where rows differ; a table for which it is not reached is left out.",
        parse=number_in(0.0, 86_400.0),
    )
    reconcile_changelog_bytes: int = option(
        "wal2lake.reconcile.changelog.bytes",
        64 * 1024 * 1024,
        "Size of a changelog in bytes up to which a comparison of all rows checks it, too: that no position is in it "
        "twice, and that its changes lead to the rows of the lake table. 0 for none.",
        parse=at_least(0),
    )
    reconcile_spark_bytes: int = option(
        "wal2lake.reconcile.spark.bytes",
        8 * 1024 * 1024 * 1024,
        "Size of a lake table's data files in bytes from which Spark tasks read them for a comparison of all rows. "
        "Smaller tables are read by the process itself, without Spark. 0 for all tables.",
        parse=at_least(0),
    )
    reconcile_keep_days: int = option(
        "wal2lake.reconcile.keep.days",
        90,
        "Days for which results are kept in the Delta table __reconciliations.",
        parse=at_least(1),
    )
