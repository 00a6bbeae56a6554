"""Merges divided slices in Spark jobs: from the driver's side, with values only.

    outcomes ─▶ shares ─▶ lake files in which a truncate ends rows ─▶ lake files to be written again
             ─▶ one commit a slice ─▶ outcomes

The tasks of a step run side by side; most slices have the first and the last one.

A commit may find that another writer has changed its lake table. Its slice is divided again then, a few times at most
(``lake_merge``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol, TypeVar

from cdc_core.lake.slice.divided import DividedSlice
from cdc_core.lake.slice.order import SliceOrder
from cdc_core.lake.slice.outcome import SliceOutcome, Timings
from cdc_core.lake.slice.share_task import ShareTask
from cdc_core.lake.slice.shares import JoinedShares, RewrittenFile, ShareResult, ends, rewrites
from cdc_core.lake.slice.task import SliceTask

Item = TypeVar("Item")
Result = TypeVar("Result")
Done = TypeVar("Done", ShareResult, RewrittenFile)


class RunTasks(Protocol):
    """Runs ``work`` for every item, each in a task of one job; returns the results in the order of the items."""

    def __call__(self, items: Sequence[Item], work: Callable[[Item], Result], doing: str) -> list[Result]:
        """Run the job; ``doing`` completes the sentence "Spark failed while …"."""
        ...


@dataclass(frozen=True, slots=True)
class SeveralTasks:
    """Merges what was divided. ``tasks``: how many run side by side."""

    task: SliceTask
    run: RunTasks
    tasks: int

    def merged(self, orders: Sequence[SliceOrder], outcomes: Sequence[SliceOutcome]) -> list[SliceOutcome]:
        """Return the outcomes of the orders once no slice is left divided, in the same order."""
        done = list(outcomes)
        while True:
            divided = [number for number, outcome in enumerate(done) if outcome.done.divided is not None]
            if not divided:
                return done
            joined = self._joined([orders[number] for number in divided], [done[number] for number in divided])
            later = self.run(joined, self.task, "committing changes")
            for number, of, outcome in zip(divided, joined, later, strict=True):
                done[number] = done[number].then(_timed(outcome, of))

    def _joined(self, orders: Sequence[SliceOrder], outcomes: Sequence[SliceOutcome]) -> list[JoinedShares]:
        slices = [outcome.done.divided for outcome in outcomes if outcome.done.divided is not None]
        work, doing = ShareTask(self.task), "merging changes into the lake"
        shares = [share for divided in slices for share in divided.shares(self.tasks)]
        results = self.run(shares, work, doing)
        ended = [order for divided in slices for order in ends(divided, _of(divided, results))]
        results += self.run(ended, work, doing)
        again = [order for divided in slices for order in rewrites(divided, _of(divided, results))]
        rewritten = self.run(again, work, doing)
        return [
            JoinedShares(
                order.after_append(),
                divided,
                _of(divided, results),
                _of(divided, rewritten),
            )
            for order, divided in zip(orders, slices, strict=True)
        ]


def _of(divided: DividedSlice, done: Sequence[Done]) -> tuple[Done, ...]:
    return tuple(task_outcome for task_outcome in done if task_outcome.table == divided.table)


def _timed(outcome: SliceOutcome, joined: JoinedShares) -> SliceOutcome:
    """Return an outcome with the time of all tasks of its slice."""
    total = reduce(Timings.plus, (task_outcome.timings for task_outcome in joined.done))
    return SliceOutcome(outcome.table, timings=total).then(outcome)
