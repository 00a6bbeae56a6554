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
    freshness_seconds: float = option(
        "wal2lake.freshness.seconds",
        2.0,
        "How far behind its source the lake may be where the machine is fast enough: rounds start at most every half "
        "of this. Larger values make fewer, larger commits.",
        parse=number_in(0.0, 86_400.0),
    )
    slice_split_rows: int = option(
        "wal2lake.slice.split.rows",
        100_000,
        "Changes of one table in a round above which several tasks decode and write them.",
        parse=at_least(1),
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
