"""The work of a round in Spark: the job of its tasks, and what only the driver can have Spark do to a lake table.

A large slice is split: several tasks of the same job decode its files and write them, and a second job commits the
files that they wrote (``engine/slice/part``). The error of one table is in its outcome; only an error that prevented
rows from being appended is raised (``SliceTask``).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from cdc_core import failpoints
from cdc_core.engine.round.lake import Work
from cdc_core.engine.slice.by_spark import SparkMerge
from cdc_core.engine.slice.order import SliceOrder
from cdc_core.engine.slice.outcome import Merged, SliceOutcome
from cdc_core.engine.slice.part import PartOrder, SlicePart, cut, joined, large_among, lost
from cdc_core.engine.slice.task import SliceTask
from cdc_core.engine.slice.upkeep import UpkeepDone, UpkeepOrder, UpkeepTask
from cdc_core.errors import CdcError
from cdc_core.schema.table import TableId
from cdc_core.spark.run_tasks import balanced, parallelism, run_tasks

# Fixed cost of a slice (open, commit, check), expressed as a number of rows.
_SLICE_ROWS = 2_000


def run_orders(work: Work, orders: Sequence[SliceOrder]) -> list[SliceOutcome]:
    """Process the orders in one job, in two for large ones; returns their outcomes in the same order."""
    if not orders:
        return []
    spark, task = work.spark(), work.task
    groups = 2 * parallelism(spark)
    large = large_among(orders, work.split_rows, task.writer.part_max_bytes)
    small = [order for order in orders if all(order is not each for each in large)]
    parts = [part for order in large for part in cut(order, parallelism(spark), task.writer.part_max_bytes)]
    items: list[SliceOrder | PartOrder] = [*parts, *small]
    todo = balanced(items, lambda item: item.rows + _SLICE_ROWS, groups)
    # balanced() reorders the work by weight, so results are matched by table, not by position.
    found = run_tasks(spark, todo, SlicePart(task), "merging changes into the lake")
    done = {outcome.table: outcome for outcome in found if isinstance(outcome, SliceOutcome)}
    if large:
        done |= {each.table: each for order in large if (each := lost(order, found)) is not None}
        second = [[joined(order, found)] for order in large if order.table not in done]
        done |= {outcome.table: outcome for outcome in run_tasks(spark, second, task, "committing changes")}
    return [done[order.table] for order in orders]


def long_merges(work: Work, orders: Sequence[SliceOrder]) -> list[str]:
    """Return the paths of the lake tables whose slices may take long, and would have to be written twice."""
    large = large_among(orders, work.split_rows, work.task.writer.part_max_bytes)
    long = [*large, *(order for order in orders if order.merge is not None and order.merge.has_backlog)]
    return [work.task.paths.lake(order.table) for order in long]


def merge_by_spark(work: Work, orders: Sequence[SliceOrder], outcomes: Sequence[SliceOutcome]) -> list[SliceOutcome]:
    """Run Spark's MERGE for the slices that are too large for a task; returns the outcomes after it."""
    return [
        outcome if outcome.staged is None or outcome.error is not None else _merged(work, order, outcome)
        for order, outcome in zip(orders, outcomes, strict=True)
    ]


def run_upkeep(work: Work, order: UpkeepOrder) -> UpkeepDone:
    """Process an order for maintenance in one task, concurrently with jobs of the rounds. Raises LakeError."""
    writer = work.task.writer
    task = UpkeepTask(work.task.run, writer.index, writer.index_max_bytes, work.task.armed)
    (done,) = run_tasks(work.spark(), [[order]], task, "maintaining a table")
    return done


def spark_merge(task: SliceTask, table: TableId, token: int) -> SparkMerge:
    """Return what has Spark merge slices that tasks staged."""
    writer = task.writer
    return SparkMerge(task.paths.lake(table), task.scope, table, token, writer.owner, writer.features)


def _merged(work: Work, order: SliceOrder, outcome: SliceOutcome) -> SliceOutcome:
    """Have Spark merge one staged slice."""
    task, waiting, started = work.task, outcome.staged, time.monotonic()
    assert waiting is not None and outcome.lake is not None
    failpoints.hit(failpoints.BEFORE_SPARK_MERGE)
    try:
        applied = spark_merge(task, order.table, order.snapshot.token).merge(work.spark(), waiting)
        lake = replace(outcome.lake, version=applied.version, lsn=waiting.to_lsn)
        outcome = replace(outcome, merged=waiting.to_lsn, done=outcome.done.then(Merged(applied)), lake=lake)
    except CdcError as error:
        outcome = outcome.failed(error)
    failpoints.hit(failpoints.AFTER_SPARK_MERGE)
    return replace(outcome, timings=outcome.timings.plus("spark merge", time.monotonic() - started))
