"""What reads ranges of tables for incremental snapshots, configured from the connector's options."""

from __future__ import annotations

from cdc_core.assemble.context import RunContext
from cdc_core.postgres import ChunkConnection, Source, connection_string
from cdc_core.snapshot import ChunkReader, RangeReader, RangeReads, UnsentChanges
from cdc_core.spark import StartSession, parallelism


def chunk_reader(context: RunContext) -> ChunkReader:
    """Return what knows the key of each table, on a connection of its own."""
    config = context.config
    size, wait = config.snapshot.incremental_snapshot_chunk_size, config.snapshot.snapshot_lock_timeout_ms
    return ChunkReader(ChunkConnection(config.postgres, wait), config.selection, (), size)


def range_reads(
    context: RunContext,
    source: Source,
    spark: StartSession,
    unsent: UnsentChanges | None,
    *,
    beside_rounds: bool,
) -> RangeReads:
    """Return what reads ranges in the tasks of a session; ``beside_rounds``: some of its cores are left to rounds."""
    from cdc_core.lake import lake_properties

    config, paths = context.config, context.lake.paths

    def threads() -> int:
        room = parallelism(spark())
        configured = config.snapshot.parallel_ranges(config.engine.snapshot_threads, room)
        return max(1, min(configured, room // 2)) if beside_rounds else configured

    return RangeReads(
        RangeReader.of(
            spark,
            context.plan,
            connection_string(config.postgres),
            paths.staged,
            config.snapshot,
            config.engine.snapshot_rows_per_partition,
            threads,
        ),
        source.describing,
        chunk_reader(context),
        paths,
        context.lake.scope,
        lake_properties(config.lake.lake_history_minutes),
        unsent,
    )
