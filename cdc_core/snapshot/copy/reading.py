"""Reads ranges of tables in parallel: one Spark job per batch of ranges, as many jobs at a time as ``parallel_jobs``.

Jobs are small so that results are known as soon as they are available, the next batch starts when a job has ended, no
range runs alone at the end for longer than its own duration, and complete tables are committed meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field

from cdc_core.connector_threads import ConnectorThreadPool
from cdc_core.lake import RangeFiles
from cdc_core.schema import TableId
from cdc_core.snapshot.copy.plan import batches
from cdc_core.snapshot.copy.table_plan import TablePlan
from cdc_core.snapshot.copy.task import CopyRanges, RangeOrder, RangeResult
from cdc_core.spark import Session, run_tasks


@dataclass(slots=True, eq=False)
class TableRead:
    """What has been read of one table: ``results`` by the number of the range, added as ranges finish.

    ``started`` is the monotonic time at which its first range was begun, None before that.
    """

    plan: TablePlan
    started: float | None = None
    results: dict[int, RangeResult] = field(default_factory=dict)

    @property
    def table(self) -> TableId:
        """The table's name."""
        return self.plan.table.id

    @property
    def is_whole(self) -> bool:
        """Whether every range has been read."""
        return len(self.results) == len(self.plan.ranges)

    @property
    def rows(self) -> int:
        """Rows read so far, including those of earlier attempts."""
        return self.rows_kept + sum(result.written.rows for result in self.results.values())

    @property
    def rows_kept(self) -> int:
        """Rows that earlier attempts read."""
        kept = self.plan.earlier.kept
        return kept.rows if kept else 0

    @property
    def ranges(self) -> tuple[int, int]:
        """Numbers of ranges that were read, and of all ranges."""
        kept = self.plan.earlier.kept
        before = len(kept.ranges) if kept else 0
        return before + len(self.results), before + len(self.plan.ranges)

    @property
    def parts(self) -> list[RangeFiles]:
        """Files written so far, in the order of the ranges."""
        return [self.results[number].written for number in sorted(self.results)]

    def seconds(self) -> float:
        """Return the time since the first range was begun."""
        return 0.0 if self.started is None else time.monotonic() - self.started

    def orders(self) -> list[RangeOrder]:
        """Return one order per range that is to be read."""
        description = self.plan.description
        return [
            RangeOrder(
                description.table,
                number,
                planned.select,
                description.target.new_files,
                description.statements.own_statement is not None,
            )
            for number, planned in enumerate(self.plan.ranges)
        ]


def read_ranges(
    spark: Session,
    reads: Sequence[TableRead],
    work: CopyRanges,
    parallel_jobs: int,
    on_start: Callable[[TableRead], None],
) -> Generator[list[RangeResult], None, None]:
    """Read every range; yields the results of each batch when it ends, to be stored by the caller.

    ``on_start`` is called for each table when its first batch starts, in a separate thread; no range of the table is
    read before it returns. Raises Spark's errors; the error of a single range is in its result. Closing the iterator
    starts no further batch and waits for the running ones.
    """
    by_table = {read.table: read for read in reads}
    items = [order for read in reads for order in read.orders()]
    todo = batches(items, [by_table[order.table.id].plan.rows_per_range for order in items], parallel_jobs)
    starting = threading.Lock()

    def one(batch: list[RangeOrder]) -> list[RangeResult]:
        for read in {order.table.id: by_table[order.table.id] for order in batch}.values():
            with starting:
                if read.started is None:
                    read.started = time.monotonic()
                    on_start(read)
        names = list(dict.fromkeys(str(order.table.id) for order in batch))
        doing = f"reading {names[0]}" + (f" and {len(names) - 1} more tables" if len(names) > 1 else "")
        return run_tasks(spark, [[batch]], work, doing)[0]

    with ConnectorThreadPool(parallel_jobs, thread_name_prefix="snapshot") as pool:
        waiting: set[Future[list[RangeResult]]] = {pool.submit(one, batch) for batch in todo}
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)
