"""The order of tables, and each table's ranges of pages that Spark tasks copy in parallel.

A range is a pair of block numbers; PostgreSQL (14 and later) reads it with a TID range scan, so only the pages of the
range are read. The last range has no upper bound: the table may have grown since its pages were counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cdc_core.postgres import Catalog, Leaf
from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot.options import SnapshotOptions, TableOrder

Item = TypeVar("Item")

_RANGES_PER_JOB = 4
_MIN_ROWS = 250_000
_BATCH_ROWS = 250_000
_ITEM_ROWS = 10_000
_MAX_RANGES = 10_000
# A query locks each table that it reads.
_MAX_TOGETHER = 100
ALONE = _BATCH_ROWS
"""The weight of a range that is a separate batch."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Pages ``first_block`` (inclusive) to ``end_block`` (exclusive; None: to the end) of one table."""

    table: TableId
    first_block: int
    end_block: int | None

    def predicate(self) -> str:
        """The SQL condition on ``ctid``, empty for the whole table."""
        parts = []
        if self.first_block > 0:
            parts.append(f"ctid >= '({self.first_block},0)'::tid")
        if self.end_block is not None:
            parts.append(f"ctid < '({self.end_block},0)'::tid")
        return " AND ".join(parts)


def plan_chunks(
    table: TableId, pages: int, rows: int | None, rows_per_chunk: int, max_chunks: int = _MAX_RANGES
) -> list[Chunk]:
    """Return ranges of about ``rows_per_chunk`` rows, with equal numbers of pages.

    ``pages`` is the server's count, 0 for an empty or partitioned table; ``rows`` its estimate, None if it was never
    analysed (then 50 rows per page are assumed; this affects only the number of ranges).
    """
    expected = expected_rows(pages, rows)
    count = max(1, min(max_chunks, -(-expected // max(1, rows_per_chunk)), max(1, pages)))
    bounds = [pages * index // count for index in range(count)]
    ends: list[int | None] = [*bounds[1:], None]
    return [Chunk(table, first, end) for first, end in zip(bounds, ends, strict=True)]


def plan_leaves(leaves: Sequence[Leaf], rows_per_chunk: int) -> list[list[Chunk]]:
    """Return the chunks of each range of a partitioned table: pages of one large leaf, or some complete small leaves.

    Small leaves are combined up to ``rows_per_chunk`` rows, in their order: a range has separate files, and a table
    may have thousands of leaves.
    """
    ranges: list[list[Chunk]] = []
    together: list[Chunk] = []
    together_rows = 0
    for leaf in leaves:
        rows = expected_rows(leaf.pages, leaf.rows)
        chunks = plan_chunks(leaf.id, leaf.pages, leaf.rows, rows_per_chunk, _MAX_RANGES if leaf.has_ctid else 1)
        if len(chunks) > 1:
            ranges += [[chunk] for chunk in chunks]
            continue
        if together and (together_rows + rows > rows_per_chunk or len(together) == _MAX_TOGETHER):
            ranges.append(together)
            together, together_rows = [], 0
        together = [*together, *chunks]
        together_rows += rows
    return [*ranges, together] if together else ranges


def plan_gap(table: TableId, gap: tuple[int, int | None], pages: int, pages_per_chunk: int) -> list[Chunk]:
    """Return ranges of about ``pages_per_chunk`` pages from the gap's first page to its end; None: the table's end."""
    first, end = gap
    step = max(1, pages_per_chunk)
    last = max(first + 1, pages if end is None else end)
    bounds = list(range(first, last, step))
    ends: list[int | None] = [*bounds[1:], end]
    return [Chunk(table, low, high) for low, high in zip(bounds, ends, strict=True)]


def expected_rows(pages: int, rows: int | None) -> int:
    """Return the server's estimate, else an estimate from the number of pages."""
    return rows if rows is not None and rows > 0 else pages * 50


def rows_per_range(estimates: Sequence[int], most: int, parallel_jobs: int) -> int:
    """Return the rows per range, at most ``most``: so that all jobs have work to the end even for few large tables.

    ``estimates`` are the tables' rows; ``parallel_jobs`` is the number of ranges read in parallel.
    """
    even = sum(estimates) // max(1, parallel_jobs * _RANGES_PER_JOB)
    return min(most, max(even, _MIN_ROWS))


def batches(items: Sequence[Item], weights: Sequence[int], parallel_jobs: int) -> list[list[Item]]:
    """Divide the items, in their order, into batches of one task each: small ones combined, large ones alone.

    ``weights`` are rows; a fixed cost is added per item for opening, writing and committing a file.
    """
    costs = [weight + _ITEM_ROWS for weight in weights]
    most = max(min(_BATCH_ROWS, sum(costs) // max(1, parallel_jobs * _RANGES_PER_JOB)), 1)
    groups: list[list[Item]] = []
    group_cost = most
    for item, cost in zip(items, costs, strict=True):
        if group_cost + cost > most:
            groups.append([])
            group_cost = 0
        groups[-1].append(item)
        group_cost += cost
    return groups


def order_tables(
    tables: Sequence[TableSchema], rows: Mapping[TableId, int | None], order: TableOrder
) -> list[TableSchema]:
    """Order the tables by their estimated rows; stable if ``order`` is disabled, or estimates are equal.

    A table that was never analysed counts as smaller than every other.
    """
    if order is TableOrder.DISABLED:
        return list(tables)

    def estimate(table: TableSchema) -> int:
        known = rows.get(table.id)
        return -1 if known is None else known

    return sorted(tables, key=estimate, reverse=order is TableOrder.DESCENDING)


def in_reading_order(catalog: Catalog, tables: Sequence[TableSchema], options: SnapshotOptions) -> list[TableSchema]:
    """Return the tables in the order set by ``snapshot.tables.order.by.row.count``, by the catalogue's estimates."""
    order = options.snapshot_tables_order_by_row_count
    sizes = {} if order is TableOrder.DISABLED else catalog.sizes(tables)
    return order_tables(tables, {name: size.rows for name, size in sizes.items()}, order)
