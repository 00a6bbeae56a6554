"""Operation ``incremental snapshot``: ranges of tables, read in Spark tasks while the stream goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.notifications import open_notifier
from cdc_core.assemble.range_reads import range_reads
from cdc_core.engine import JobCallbacks, plan_ranges, read_ranges
from cdc_core.postgres import Source
from cdc_core.schema import TableId
from cdc_core.snapshot import KeyRange, RangeReads, RangeReport, UnsentChanges
from cdc_core.spark import StartSession


def plan_incremental(context: RunContext, tables: Sequence[TableId] | None, *, renew: bool = False) -> list[KeyRange]:
    """Return the ranges of tables (None: all captured ones that can be read so), as they are planned."""
    with context.source() as source:
        captured = context.captured(source)
        return plan_ranges(source, captured, tables, lambda: _reads(context, source, context.spark), renew=renew)


def incremental_snapshot(
    context: RunContext,
    names: Sequence[str | TableId | KeyRange] | None,
    spark: StartSession,
    stream: Callable[[Callable[[], bool]], None],
    callbacks: JobCallbacks,
    wait_seconds: float,
) -> list[RangeReport]:
    """Read ranges, and return what became of each: as ``Connector.incremental_snapshot`` describes."""
    with (
        context.source() as source,
        _reads(context, source, spark) as reads,
        open_notifier(context, None) as notifier,
    ):
        captured = context.captured(source)
        return read_ranges(context.lake, source, captured, names, reads, notifier, stream, callbacks, wait_seconds)


def _reads(context: RunContext, source: Source, spark: StartSession) -> AbstractContextManager[RangeReads]:
    unsent = UnsentChanges(context.lake.paths, context.lake.scope)
    return closing(range_reads(context, source, spark, unsent, beside_rounds=False))
