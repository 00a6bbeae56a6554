"""Ranges of tables read in parallel: a job a batch of ranges, as many jobs at a time as there are lanes.

Jobs are small on purpose: what a range brought is known when it is there, a lane that is done takes the next batch, so
no range runs alone at the end for longer than its own time, and the tables that are whole are committed meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from cdc_core.errors import CdcError
from cdc_core.postgres.copy_out import own_rows_sql, select_from, select_sql
from cdc_core.postgres.leaves import Leaf
from cdc_core.schema.table import TableSchema
from cdc_core.sink.delta.range_log import FinishedRange
from cdc_core.sink.delta.snapshot_log import TakenSnapshot
from cdc_core.sink.delta.table import DataFile, DeltaTable
from cdc_core.snapshot.copy_task import CopyRanges, RangeOrder, RangeResult
from cdc_core.snapshot.plan import Chunk, batches
from cdc_core.snapshot.resume import Resumption
from cdc_core.spark.run_tasks import run_tasks


@dataclass(slots=True, eq=False)
class Reading:
    """One table while it is read: its ``columns``. ``lake`` has its place in the lake, ``schema`` the columns there.

    ``in_force`` is the token of the snapshot that the lake has. ``own_statement`` is a SELECT of the user's own that
    gives its rows; ``row_filter`` is the publication's: what it leaves out comes in no event either, and would stay as
    it is now. ``keeps_gone_rows``: the lake keeps what the source has no more, by its delete mode. ``leaves`` are the
    partitions that are read by their own names instead of the table's, none where it is read under its own. ``pages``
    and ``estimate``, of its rows, are the server's; ``has_ctid`` says whether ranges of its pages can be read.

    ``selects`` are its ranges, ``weights`` their estimated rows; ``results`` are filled in as they come. ``chunks`` are
    the pages of those ranges that are to be written down when they are read, ``marks`` what goes with them (None:
    nothing is written down). ``recorded`` is what was written down by earlier attempts, ``kept`` what is used of it,
    and ``fresh`` are the ranges whose rows' keys are to be taken out of that.
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
        """Whether every range has come to its end."""
        return len(self.results) == len(self.selects)

    @property
    def rows(self) -> int:
        """Rows read so far, by earlier attempts too."""
        return self.rows_kept + sum(result.rows for result in self.results.values())

    @property
    def rows_kept(self) -> int:
        """Rows that earlier attempts read."""
        return sum(file.rows for file in self.kept.files) if self.kept else 0

    @property
    def ranges(self) -> tuple[int, int]:
        """Ranges that are read, and all."""
        before = len(self.kept.ranges) if self.kept else 0
        return before + len(self.results), before + len(self.selects)

    @property
    def files(self) -> list[DataFile]:
        """What was written so far, in the order of the ranges."""
        return [file for number in sorted(self.results) for file in self.results[number].files]

    @property
    def error(self) -> CdcError | None:
        """Why some range could not be read."""
        return next((result.error for result in self.results.values() if result.error is not None), None)

    def query(self, *conditions: str) -> str:
        """The SELECT of the rows for which all conditions hold; empty ones are passed by."""
        if self.own_statement is not None:
            return select_from(self.own_statement, self.columns)
        row_filter = f"({self.row_filter})" if self.row_filter else ""
        return own_rows_sql(self.table, self.columns, " AND ".join(filter(None, [*conditions, row_filter])))

    def query_leaves(self, chunks: Sequence[Chunk]) -> str:
        """The SELECT of the rows of the leaves' pages, as they would come under the table's name.

        An attached leaf may have its columns in another order, so they are named. The row filter is written for the
        table, and may call it by its name.
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
        """An order a range that is to be read."""
        return [
            RangeOrder(self.table, number, select, self.lake.path, self.schema)
            for number, select in enumerate(self.selects)
            if number not in self.results
        ]


def read_ranges(
    spark: Any,
    readings: Sequence[Reading],
    work: CopyRanges,
    lanes: int,
    on_start: Callable[[Reading], None],
) -> Generator[list[RangeResult], None, None]:
    """Read every range that is missing; the results of a batch as they come, which the caller keeps.

    ``on_start`` is called for each table when its first batch starts, in a separate thread. Raises what Spark raises;
    what hinders a single range is in its result. Closing the iterator starts no further batch and waits for those at
    work.
    """
    by_table = {reading.table.id: reading for reading in readings}
    items = [order for reading in readings for order in reading.orders()]
    todo = batches(items, [by_table[order.table.id].weights[order.number] for order in items], lanes)

    def one(batch: list[RangeOrder]) -> list[RangeResult]:
        for reading in {order.table.id: by_table[order.table.id] for order in batch}.values():
            if reading.started is None:
                reading.started = time.monotonic()
                on_start(reading)
        names = list(dict.fromkeys(str(order.table.id) for order in batch))
        doing = f"reading {names[0]}" + (f" and {len(names) - 1} more tables" if len(names) > 1 else "")
        return run_tasks(spark, [[batch]], work, doing)[0]

    with ThreadPoolExecutor(lanes, thread_name_prefix="snapshot") as pool:
        waiting: set[Future[list[RangeResult]]] = {pool.submit(one, batch) for batch in todo}
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for each in done:
                    yield each.result()
        finally:
            pool.shutdown(cancel_futures=True)
