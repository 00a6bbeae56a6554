"""How a run batches, spools and merges, and the Spark session it uses."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.option import Named, at_least, number_in, option
from cdc_core.selection import NumberByTable

SINKS = ("lake", "kafka", "noop")


def parse_sinks(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of lake, kafka and noop; noop cannot be combined. Raises ValueError."""
    parts = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    if not parts or any(part not in SINKS for part in parts) or (len(parts) > 1 and "noop" in parts):
        raise ValueError("lake, kafka, lake,kafka or noop")
    return parts


parse_sinks.allowed = SINKS  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The options of a run."""

    sinks: tuple[str, ...] = option(
        "wal2lake.sinks",
        ("lake",),
        "Where changes are written: lake, kafka (as events), lake,kafka, or noop, which decodes and converts changes "
        "and discards them.",
        parse=parse_sinks,
    )
    state_path: str = option(
        "wal2lake.state.path",
        "",
        "Folder for state that is kept between runs, and for the spool; on shared storage where Spark is a "
        "cluster. Empty: .wal2lake/<topic.prefix> in the working directory.",
    )
    batch_max_rows: int = option(
        "wal2lake.batch.max.rows", 500_000, "Maximum number of messages in a micro-batch.", parse=at_least(1)
    )
    batch_max_bytes: int = option(
        "wal2lake.batch.max.bytes", 256 * 1024 * 1024, "Maximum size of a micro-batch in bytes.", parse=at_least(1)
    )
    freshness_seconds: float = option(
        "wal2lake.freshness.seconds",
        2.0,
        "Target lag of the lake behind its source, in seconds: a round starts at most every half of this. "
        "Larger values make fewer, larger commits.",
        parse=number_in(0.0, 86_400.0),
    )
    freshness_tables: tuple[tuple[str, tuple[str, ...]], ...] = option(
        "wal2lake.freshness.seconds.N",
        (),
        "Tables whose target lag is N seconds instead: regular expressions that match schema.table. The first of these "
        "properties that matches is used. Rounds start by the least of all numbers; a table with a larger one is left "
        "out until half of it has passed since its last merge. Its changes are in its changelog meanwhile.",
        parse=NumberByTable.parse_tables,
        pattern=r"wal2lake\.freshness\.seconds\.(\d{1,5}(?:\.\d{1,3})?)",
        names=Named.CAPTURED,
    )
    slice_split_rows: int = option(
        "wal2lake.slice.split.rows",
        100_000,
        "Number of changes of one table in a round above which several tasks decode and write them.",
        parse=at_least(1),
    )
    spool_max_bytes: int = option(
        "wal2lake.spool.max.bytes",
        1024**3,
        "Maximum size of the spool in bytes; reading pauses while it is full.",
        parse=at_least(1),
    )
    errors_max_retries: int = option(
        "errors.max.retries",
        -1,
        "Number of times in a row that a run tries again after a fault that passes (docs/reliability.md); -1 for no "
        "limit, 0 to end at the first one.",
        parse=at_least(-1),
    )
    errors_retry_delay_initial_ms: int = option(
        "errors.retry.delay.initial.ms",
        300,
        "Wait before the first of these retries; it doubles with each that follows. A wait ends early once a server "
        "that was away accepts connections.",
        parse=at_least(1),
    )
    errors_retry_delay_max_ms: int = option(
        "errors.retry.delay.max.ms", 10_000, "Longest wait between two retries.", parse=at_least(1)
    )
    retriable_restart_connector_wait_ms: int = option(
        "retriable.restart.connector.wait.ms",
        10_000,
        "Longest wait before a run starts again, as errors.retry.delay.max.ms: the lower of both applies.",
        parse=at_least(0),
    )
    snapshot_rows_per_partition: int = option(
        "wal2lake.snapshot.rows.per.partition",
        1_000_000,
        "Maximum estimated number of rows in a range; a larger table is read in several ranges.",
        parse=at_least(1),
    )
    snapshot_threads: int = option(
        "wal2lake.snapshot.threads",
        0,
        "Number of table ranges read in parallel, 0 for the number of Spark's task slots; the larger of this "
        "and snapshot.max.threads is used.",
        parse=at_least(0),
    )
    spark: tuple[tuple[str, str], ...] = option(
        "wal2lake.spark.NAME",
        (),
        "A setting of the Spark session: wal2lake.spark.spark.sql.shuffle.partitions=8.",
        parse=str,
        pattern=r"wal2lake\.spark\.(.+)",
    )

    @property
    def freshness(self) -> NumberByTable:
        """The target lag of each table in seconds."""
        return NumberByTable.of(self.freshness_seconds, self.freshness_tables)
