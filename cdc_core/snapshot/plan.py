"""The order of tables, and each table's ranges of pages that Spark tasks copy side by side.

A range is a pair of block numbers; PostgreSQL (14 and later) reads it with a TID range scan, so no range costs more
than its own pages. The last range has no upper end: the table may have grown since its pages were counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cdc_core.schema.table import TableId, TableSchema
from cdc_core.snapshot.options import TableOrder


@dataclass(frozen=True, slots=True)
class Chunk:
    """Pages ``first_block`` (inclusive) to ``end_block`` (exclusive; None: to the end) of one table."""

    table: TableId
    first_block: int
    end_block: int | None

    @property
    def is_whole_table(self) -> bool:
        """Whether the chunk needs no range at all."""
        return self.first_block == 0 and self.end_block is None

    def predicate(self) -> str:
        """The SQL condition on ``ctid``, empty for the whole table."""
        parts = []
        if self.first_block > 0:
            parts.append(f"ctid >= '({self.first_block},0)'::tid")
        if self.end_block is not None:
            parts.append(f"ctid < '({self.end_block},0)'::tid")
        return " AND ".join(parts)


def plan_chunks(table: TableId, pages: int, rows: int | None, rows_per_chunk: int, max_chunks: int) -> list[Chunk]:
    """Ranges of about ``rows_per_chunk`` rows, evenly cut by pages.

    ``pages`` is the server's count, 0 for an empty or partitioned table; ``rows`` its estimate, None where it was never
    analysed (then 50 rows a page are assumed: a guess that only decides how finely to cut).
    """
    expected = rows if rows is not None and rows > 0 else pages * 50
    count = max(1, min(max_chunks, -(-expected // max(1, rows_per_chunk)), max(1, pages)))
    bounds = [pages * index // count for index in range(count)]
    ends: list[int | None] = [*bounds[1:], None]
    return [Chunk(table, first, end) for first, end in zip(bounds, ends, strict=True)]


def order_tables(
    tables: Sequence[TableSchema], rows: Mapping[TableId, int | None], order: TableOrder
) -> list[TableSchema]:
    """The tables by their estimated rows; as they were where ``order`` is disabled, or estimates are equal.

    A table that was never analysed counts as smaller than every other.
    """
    if order is TableOrder.DISABLED:
        return list(tables)

    def estimate(table: TableSchema) -> int:
        found = rows.get(table.id)
        return -1 if found is None else found

    return sorted(tables, key=estimate, reverse=order is TableOrder.DESCENDING)
