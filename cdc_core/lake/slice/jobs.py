"""The work of a round in Spark: the job of its tasks.

A large slice is split: several tasks of the same job decode its files and write them, and a second job commits the
files that they wrote (``lake/slice/part``). Changes of one table that exceed a part's memory are divided among tasks,
whose work another job commits (``lake/slice/several_tasks``). The error of one table is in its outcome; only an error
that prevented rows from being appended is raised (``SliceTask``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cdc_core.lake.delta.side_by_side import side_by_side
from cdc_core.lake.schema.features import announce
from cdc_core.lake.slice.order import SliceOrder
from cdc_core.lake.slice.outcome import SliceOutcome
from cdc_core.lake.slice.part import PartOrder, SlicePart, bytes_of, cut, joined, large_among, lost
from cdc_core.lake.slice.several_tasks import SeveralTasks
from cdc_core.lake.slice.task import SliceTask
from cdc_core.lake.slice.upkeep import UpkeepDone, UpkeepOrder, UpkeepTask
from cdc_core.spark import StartSession, balanced, parallelism, run_tasks

Item = TypeVar("Item")
Result = TypeVar("Result")

# Fixed cost of a slice (open, commit, check), expressed as a number of rows.
_SLICE_ROWS = 2_000


@dataclass(frozen=True, slots=True)
class Work:
    """How slices are processed: ``task`` in the session of ``spark``, several tasks for more than ``split_rows``."""

    spark: StartSession
    task: SliceTask
    split_rows: int

    def run(self, orders: Sequence[SliceOrder]) -> list[SliceOutcome]:
        """Process the orders in one job, in more for large ones; returns their outcomes in the same order."""
        if not orders:
            return []
        spark, task = self.spark(), self.task
        large = large_among(orders, self.split_rows, task.writer.part_max_bytes)
        # Small slices of one task wait for a store side by side; else more tasks than cores end at about the same time.
        is_together = not task.paths.is_local and fit_together(orders, task.writer.part_max_bytes)
        groups, way = (parallelism(spark), _together) if is_together else (2 * parallelism(spark), None)
        small = [order for order in orders if all(order is not large_order for large_order in large)]
        parts = [part for order in large for part in cut(order, parallelism(spark), task.writer.part_max_bytes)]
        items: list[SliceOrder | PartOrder] = [*parts, *small]
        todo = balanced(items, lambda item: item.rows + _SLICE_ROWS, groups)
        # balanced() reorders the work by weight, so results are matched by table, not by position.
        results = run_tasks(spark, todo, SlicePart(task), "merging changes into the lake", way)
        done = {outcome.table: outcome for outcome in results if isinstance(outcome, SliceOutcome)}
        if large:
            done |= {failed.table: failed for order in large if (failed := lost(order, results)) is not None}
            second = [[joined(order, results)] for order in large if order.table not in done]
            done |= {outcome.table: outcome for outcome in run_tasks(spark, second, task, "committing changes")}

        def together(items: Sequence[Item], work: Callable[[Item], Result], doing: str) -> list[Result]:
            return run_tasks(spark, [[item] for item in items], work, doing)

        several = SeveralTasks(task, together, parallelism(spark))
        outcomes = several.merged(orders, [done[order.table] for order in orders])
        for outcome in outcomes:
            announce(str(outcome.table), outcome.enabled, marks=outcome.marks)
        return outcomes

    def long_merges(self, orders: Sequence[SliceOrder]) -> list[str]:
        """Return the paths of the lake tables whose slices may take long, and would have to be written twice."""
        large = large_among(orders, self.split_rows, self.task.writer.part_max_bytes)
        long = [*large, *(order for order in orders if order.has_backlog)]
        return [self.task.paths.lake(order.table) for order in long]

    def upkeep(self, order: UpkeepOrder) -> UpkeepDone:
        """Process an order for maintenance in one task, concurrently with jobs of the rounds. Raises LakeError."""
        writer = self.task.writer
        task = UpkeepTask(self.task.run, writer.index, writer.index_max_bytes, self.task.armed)
        (done,) = run_tasks(self.spark(), [[order]], task, "maintaining a table")
        return done


def fit_together(orders: Sequence[SliceOrder], most_bytes: int) -> bool:
    """Whether the rows of all orders fit the memory for one part, without those of backlogs, of which a task has one.

    How many rows a backlog has is not known; a part of it fits.
    """
    return sum(bytes_of(order.files) for order in orders) <= most_bytes


def _together(
    work: Callable[[SliceOrder | PartOrder], Result], items: Sequence[SliceOrder | PartOrder]
) -> list[Result]:
    """Process orders, and parts of orders, of one task."""
    return side_by_side(work, items, _has_backlog)


def _has_backlog(item: SliceOrder | PartOrder) -> bool:
    return isinstance(item, SliceOrder) and item.has_backlog
