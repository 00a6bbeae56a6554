"""Combines rows to a Parquet file's row groups, and selects the columns for dictionary encoding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_core.lake.delete_columns import TO_LSN
from cdc_core.lake.delta.conform import conform

_GROUP_ROWS = 100_000
GROUP_BYTES = 64 << 20
_SAMPLE_ROWS = 10_000
# With few rows a dictionary costs more time and bytes than it saves.
_MIN_ROWS = 10_000
_LARGE_VALUE = 1 << 20
_RELEASED = 32 << 20
# A page is what is read to get one row (``pages``), also by other readers that know the page index. Its size is checked
# after each batch of values.
PAGE_ROWS = 2_000
# A file of less is read as a whole as quickly, and rewritten if its rows change: small pages take a third more time.
_PAGED_BYTES = 2 << 20
# The file of a round that changes a few rows, of which a table that changes all the time keeps hundreds. Beginning a
# frame of zstd for each column takes more time than the rest of it, and the footer, more bytes than the rows.
_TINY_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class Layout:
    """How a data file is compressed, and the most rows of its pages; None for the writer's own pages of a megabyte.

    ``statistics``: whether its footer has those of each column, which the log has too. ``omits_nulls``: a column
    without any value is not written; readers fill it, as one that was added later.
    """

    compression: str = "zstd"
    page_rows: int | None = None
    statistics: bool = True
    omits_nulls: bool = False

    @classmethod
    def of(cls, first: pa.Table, *, is_local: bool) -> Layout:
        """Return the layout of a file that begins with these rows.

        A version of a history table is read as a whole when it ends, in each of its columns. Of 1,000 versions in 10 M
        rows of 12 columns that takes 0.6 s of CPU from pages of 2,000 rows under zstd, 0.12 s from pages of 200 under
        Snappy; such files are up to 1.8 times as large. Only where pages are read at all: on a local disk.
        """
        if first.nbytes <= _TINY_BYTES:
            return cls("snappy", statistics=False, omits_nulls=True)
        statistics = not has_large_values(first)
        if first.nbytes <= _PAGED_BYTES:
            return cls(statistics=statistics)
        ends = first.column(TO_LSN) if TO_LSN in first.schema.names else None
        if is_local and ends is not None and ends.null_count == len(ends):
            return cls("snappy", 200, statistics)
        return cls(page_rows=PAGE_ROWS, statistics=statistics)

    @property
    def pages(self) -> dict[str, int]:
        """The writer's settings for pages."""
        if self.page_rows is None:
            return {}
        return {"max_rows_per_page": self.page_rows, "data_page_size": 64 << 10, "write_batch_size": 64}


def row_groups(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, group_bytes: int = GROUP_BYTES
) -> Iterator[pa.Table]:
    """Yield the batches combined to row groups; none if there are no rows."""
    waiting: list[pa.RecordBatch] = []
    count = octets = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        octets += batch.nbytes
        del batch  # it may be large, and would stay in memory until the next one was made
        if count >= _GROUP_ROWS or octets >= group_bytes:
            yield conform(pa.Table.from_batches(waiting), schema)
            waiting, count, octets = [], 0, 0
    if count:
        yield conform(pa.Table.from_batches(waiting), schema)


def bytes_in_memory(facts: Any) -> int:
    """Estimate the size of a file's rows in memory from its ``FileMetaData``."""
    return sum(int(facts.row_group(number).total_byte_size) for number in range(facts.num_row_groups))


def stepwise(parquet: pq.ParquetFile, columns: list[str], rows: int) -> Iterator[pa.Table]:
    """Yield a file's rows, at most ``rows`` at a time; large ones a row group at a time.

    A reader of batches keeps what it has decompressed until the next batch, which for large rows is their size again.
    """
    if rows > 1:
        for batch in parquet.iter_batches(rows, columns=columns, use_threads=False):
            yield pa.Table.from_batches([batch])
            del batch
        return
    for number in range(parquet.num_row_groups):
        yield parquet.read_row_group(number, columns=columns, use_threads=False)


def parquet_writer(
    target: Any, schema: pa.Schema, layout: Layout, use_dictionary: bool | list[str]
) -> pq.ParquetWriter:
    """Return a writer of data files. Without statistics there is no page index either, which would be as large."""
    return pq.ParquetWriter(
        target,
        schema,
        compression=layout.compression,
        store_schema=False,
        use_dictionary=use_dictionary,
        write_statistics=layout.statistics,
        write_page_index=layout.statistics,
        **(layout.pages if layout.statistics else {}),
    )


def has_large_values(rows: pa.Table | pa.ChunkedArray) -> bool:
    """Whether a text or binary value, also a nested one, has more than a megabyte.

    Parquet's writer keeps several copies of the least and the greatest value of a column for its statistics, so files
    with such values have none.
    """
    if rows.nbytes <= _LARGE_VALUE:
        return False
    columns = rows.columns if isinstance(rows, pa.Table) else [rows]
    return any(_has_large(chunk) for column in columns for chunk in column.chunks)


def release(octets: int) -> None:
    """Give memory back after rows of so many bytes: the allocator keeps what is free, for each size its own."""
    if octets > _RELEASED:
        pa.default_memory_pool().release_unused()


def _has_large(values: pa.Array) -> bool:
    kind = values.type
    if pa.types.is_struct(kind):
        return any(_has_large(child) for child in values.flatten())
    if pa.types.is_map(kind):
        return _has_large(values.items)
    if pa.types.is_list(kind):
        return _has_large(values.flatten())
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)) or values.nbytes <= _LARGE_VALUE:
        return False
    return (pc.max(pc.binary_length(values)).as_py() or 0) > _LARGE_VALUE


def repeated_columns(rows: pa.Table) -> list[str]:
    """Return the columns with repeated values in the first rows: for others a dictionary costs more than it saves.

    Nested columns are left out: Parquet identifies their leaves, not their outer names.
    """
    if rows.num_rows < _MIN_ROWS:
        return []
    sample = rows.slice(0, _SAMPLE_ROWS)
    names = []
    for field in rows.schema:
        if not (pa.types.is_nested(field.type) or pa.types.is_boolean(field.type) or pa.types.is_null(field.type)):
            distinct = pc.count_distinct(sample.column(field.name), mode="all").as_py()
            if distinct <= sample.num_rows // 4:
                names.append(field.name)
    return names
