"""How a run batches, spools and merges, and the Spark session it uses."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.option import at_least, number_in, option

SINKS = ("lake", "noop")


def parse_sinks(text: str) -> tuple[str, ...]:
    """Comma-separated of lake and noop; noop stands alone."""
    parts = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    if not parts or any(part not in SINKS for part in parts) or (len(parts) > 1 and "noop" in parts):
        raise ValueError("one of lake, noop")
    return parts


parse_sinks.allowed = SINKS  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What steers a run."""

    sinks: tuple[str, ...] = option(
        "wal2lake.sinks",
        ("lake",),
        "Where changes go: lake, or noop, which decodes and types them and lets them go.",
        parse=parse_sinks,
    )
    state_path: str = option(
        "wal2lake.state.path",
        "",
        "Folder of what must outlive a run beside the lake, spool included; shared storage where Spark is a cluster. "
        "Empty: .wal2lake/<topic.prefix> under the working folder.",
    )
    batch_max_rows: int = option(
        "wal2lake.batch.max.rows", 500_000, "Most messages of one micro-batch.", parse=at_least(1)
    )
    batch_max_bytes: int = option(
        "wal2lake.batch.max.bytes", 256 * 1024 * 1024, "Most bytes of one micro-batch.", parse=at_least(1)
    )
    batch_max_seconds: float = option(
        "wal2lake.batch.max.seconds",
        1.0,
        "Longest time a micro-batch gathers before it is written.",
        parse=number_in(0.0, 86_400.0),
    )
    merge_interval_seconds: float = option(
        "wal2lake.merge.interval.seconds",
        10.0,
        "Time between merge rounds; 0 for one after each micro-batch.",
        parse=number_in(0.0, 86_400.0),
    )
    spool_max_bytes: int = option(
        "wal2lake.spool.max.bytes", 1024**3, "Most bytes that wait on disk before reading pauses.", parse=at_least(1)
    )
    snapshot_rows_per_partition: int = option(
        "wal2lake.snapshot.rows.per.partition",
        1_000_000,
        "Estimated rows of one range of a table; larger tables are read in several ranges.",
        parse=at_least(1),
    )
    snapshot_threads: int = option(
        "wal2lake.snapshot.threads",
        2,
        "Tables read side by side; the larger of this and snapshot.max.threads holds.",
        parse=at_least(1),
    )
    spark: tuple[tuple[str, str], ...] = option(
        "wal2lake.spark.NAME",
        (),
        "A setting of the Spark session: wal2lake.spark.spark.sql.shuffle.partitions=8.",
        parse=str,
        pattern=r"wal2lake\.spark\.(.+)",
    )
