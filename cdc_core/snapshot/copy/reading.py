"""Reads ranges of tables in parallel: one Spark job per batch of ranges, as many jobs at a time as ``parallel_jobs``.

Jobs are small so that results are known as soon as they are available, the next batch starts when a job has ended, no
range runs alone at the end for longer than its own duration, and complete tables are committed meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from cdc_core.errors import CdcError
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.stores.range_log import FinishedRange
from cdc_core.lake.stores.snapshot_log import TakenSnapshot
from cdc_core.postgres.catalog.leaves import Leaf
from cdc_core.postgres.rows.copy_out import own_rows_sql, select_from, select_sql
from cdc_core.schema.table import TableSchema
from cdc_core.snapshot.copy.plan import Chunk, batches
from cdc_core.snapshot.copy.resume import Resumption
from cdc_core.snapshot.copy.task import CopyRanges, RangeOrder, RangeResult
from cdc_core.spark.run_tasks import run_tasks


@dataclass(slots=True, eq=False)
class Reading:
    """One table while it is read: its ``columns``. ``lake`` is its lake table, ``schema`` the columns there.

    ``in_force`` is the token of the lake's snapshot. ``own_statement`` is a SELECT defined by the user that returns its
    rows; ``row_filter`` is the publication's: rows that it excludes have no events either, and would never be updated.
    ``keeps_gone_rows``: the lake keeps rows that the source no longer has, by its delete mode. ``leaves`` are the
    partitions that are read by their own names instead of the table's, empty if it is read by its own. ``pages`` and
    ``estimate`` (of its rows) are the server's; ``has_ctid``: ranges of its pages can be read. ``selects`` are its
    ranges, ``weights`` their estimated rows; ``results`` are added as ranges finish. ``chunks`` are the pages of ranges
    that are to be recorded after they are read, ``marks`` the digest recorded with them (None: nothing is recorded).
    ``recorded`` are the entries of earlier attempts, ``kept`` those that are used, and ``fresh`` are the ranges whose
    rows' keys are to be removed from their files.
    """

    table: TableSchema
    columns: tuple[str, ...]
    lake: DeltaTable
    schema: pa.Schema
    taken: TakenSnapshot
    in_force: int | None = None
    own_statement: str | None = None
    row_filter: str = ""
    keeps_gone_rows: bool = False
    leaves: tuple[Leaf, ...] = ()
    pages: int = 0
    estimate: int | None = None
    has_ctid: bool = True
    selects: list[str] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    chunks: dict[int, Chunk] = field(default_factory=dict)
    marks: str | None = None
    recorded: list[FinishedRange] = field(default_factory=list)
    kept: Resumption | None = None
    fresh: set[int] = field(default_factory=set)
    shape: int = 0
    started: float | None = None
    results: dict[int, RangeResult] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether every range has been read."""
        return len(self.results) == len(self.selects)

    @property
    def rows(self) -> int:
        """Rows read so far, including those of earlier attempts."""
        return self.rows_kept + sum(result.rows for result in self.results.values())

    @property
    def rows_kept(self) -> int:
        """Rows that earlier attempts read."""
        return sum(file.rows for file in self.kept.files) if self.kept else 0

    @property
    def ranges(self) -> tuple[int, int]:
        """Numbers of ranges that were read, and of all ranges."""
        before = len(self.kept.ranges) if self.kept else 0
        return before + len(self.results), before + len(self.selects)

    @property
    def files(self) -> list[DataFile]:
        """Files written so far, in the order of the ranges."""
        return [file for number in sorted(self.results) for file in self.results[number].files]

    @property
    def error(self) -> CdcError | None:
        """The first error of a range; None if there is none."""
        return next((result.error for result in self.results.values() if result.error is not None), None)

    def query(self, *conditions: str) -> str:
        """Return the SELECT of the rows for which all conditions hold; empty conditions are ignored."""
        if self.own_statement is not None:
            return select_from(self.own_statement, self.columns)
        row_filter = f"({self.row_filter})" if self.row_filter else ""
        return own_rows_sql(self.table, self.columns, " AND ".join(filter(None, [*conditions, row_filter])))

    def query_leaves(self, chunks: Sequence[Chunk]) -> str:
        """Return the SELECT of the rows of the leaves' pages, equal to a SELECT from the table.

        An attached leaf may have its columns in another order, so they are named. The row filter is written for the
        table, and may contain its name.
        """
        row_filter = f"({self.row_filter})" if self.row_filter else ""
        return " UNION ALL ".join(
            select_sql(
                chunk.table,
                self.columns,
                " AND ".join(filter(None, [chunk.predicate(), row_filter])),
                only=True,
                alias=self.table.id.table,
            )
            for chunk in chunks
        )

    def orders(self) -> list[RangeOrder]:
        """Return one order per range that is to be read."""
        return [
            RangeOrder(self.table, number, select, self.lake.path, self.schema)
            for number, select in enumerate(self.selects)
            if number not in self.results
        ]


def read_ranges(
    spark: Any,
    readings: Sequence[Reading],
    work: CopyRanges,
    parallel_jobs: int,
    on_start: Callable[[Reading], None],
) -> Generator[list[RangeResult], None, None]:
    """Read every missing range; yields the results of each batch when it ends, to be stored by the caller.

    ``on_start`` is called for each table when its first batch starts, in a separate thread. Raises Spark's errors; the
    error of a single range is in its result. Closing the iterator starts no further batch and waits for the running
    ones.
    """
    by_table = {reading.table.id: reading for reading in readings}
    items = [order for reading in readings for order in reading.orders()]
    todo = batches(items, [by_table[order.table.id].weights[order.number] for order in items], parallel_jobs)

    def one(batch: list[RangeOrder]) -> list[RangeResult]:
        for reading in {order.table.id: by_table[order.table.id] for order in batch}.values():
            if reading.started is None:
                reading.started = time.monotonic()
                on_start(reading)
        names = list(dict.fromkeys(str(order.table.id) for order in batch))
        doing = f"reading {names[0]}" + (f" and {len(names) - 1} more tables" if len(names) > 1 else "")
        return run_tasks(spark, [[batch]], work, doing)[0]

    with ThreadPoolExecutor(parallel_jobs, thread_name_prefix="snapshot") as pool:
        waiting: set[Future[list[RangeResult]]] = {pool.submit(one, batch) for batch in todo}
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for each in done:
                    yield each.result()
        finally:
            pool.shutdown(cancel_futures=True)
