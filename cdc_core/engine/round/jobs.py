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
from cdc_core.engine.slice.order import SliceOrder, SliceOutcome
from cdc_core.engine.slice.part import PartOrder, SlicePart, cut, joined, large_among, lost
from cdc_core.errors import CdcError
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
        second = [[joined(order, found)] for order in large if order.table.id not in done]
        done |= {outcome.table: outcome for outcome in run_tasks(spark, second, task, "committing changes")}
    return [done[order.table.id] for order in orders]


def evolve(work: Work, orders: Sequence[SliceOrder], outcomes: Sequence[SliceOutcome]) -> list[SliceOutcome]:
    """Change tables with Spark whose new shape a task cannot apply, then merge the changes that need that shape."""
    found, again, task = {outcome.table: outcome for outcome in outcomes}, [], work.task
    for order in orders:
        outcome = found[order.table.id]
        if not outcome.evolves:
            continue
        try:
            path = task.paths.lake(order.table.id)
            task.writer.evolve_with_spark(work.spark(), path, task.scope, order, task.plan)
        except CdcError as error:
            outcome.error = error
            continue
        # The rows that the first attempt appended are in the changelog now.
        waits = order.has_backlog or bool(order.files or order.written)
        again.append(replace(order, files=(), written=(), arrived=(), rows=0, has_backlog=waits))
    for done in run_orders(work, again):
        first = found[done.table]
        found[done.table] = replace(done, appended=first.appended, changelog_files=first.changelog_files)
    return [found[order.table.id] for order in orders]


def merge_staged(work: Work, orders: Sequence[SliceOrder], outcomes: Sequence[SliceOutcome]) -> None:
    """Run Spark's MERGE for the slices that are too large for a task."""
    task = work.task
    for order, outcome in zip(orders, outcomes, strict=True):
        if outcome.staged is None or outcome.error is not None:
            continue
        started = time.monotonic()
        failpoints.hit(failpoints.BEFORE_SPARK_MERGE)
        try:
            outcome.applied = task.writer.merge_with_spark(
                work.spark(), task.paths.lake(order.table.id), task.scope, order, outcome.staged
            )
            outcome.merged = outcome.lake_lsn = outcome.staged.to_lsn
            outcome.lake_version = outcome.applied.version
        except CdcError as error:
            outcome.error = error
        failpoints.hit(failpoints.AFTER_SPARK_MERGE)
        outcome.seconds["spark merge"] = time.monotonic() - started


def enable_features(work: Work, orders: Sequence[SliceOrder], outcomes: Sequence[SliceOutcome]) -> None:
    """Enable the table features that new lake tables lack."""
    task = work.task
    for order, outcome in zip(orders, outcomes, strict=True):
        if outcome.lacks_features and outcome.error is None:
            try:
                task.writer.enable_with_spark(work.spark(), task.paths.lake(order.table.id), order)
            except CdcError as error:
                outcome.error = error
