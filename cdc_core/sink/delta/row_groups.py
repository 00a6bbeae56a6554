"""Combines rows to a Parquet file's row groups, and selects the columns for dictionary encoding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.sink.delta.conform import conform

_GROUP_ROWS = 100_000
_GROUP_BYTES = 64 << 20
_SAMPLE_ROWS = 10_000
# With few rows a dictionary costs more time and bytes than it saves.
_MIN_ROWS = 10_000


def row_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the batches combined to row groups; none if there are no rows."""
    waiting: list[pa.RecordBatch] = []
    count = octets = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        octets += batch.nbytes
        if count >= _GROUP_ROWS or octets >= _GROUP_BYTES:
            yield conform(pa.Table.from_batches(waiting), schema)
            waiting, count, octets = [], 0, 0
    if count:
        yield conform(pa.Table.from_batches(waiting), schema)


def bytes_in_memory(facts: Any) -> int:
    """Estimate the size of a file's rows in memory from its ``FileMetaData``."""
    return sum(int(facts.row_group(number).total_byte_size) for number in range(facts.num_row_groups))


def repeated_columns(rows: pa.Table) -> list[str]:
    """Return the columns with repeated values in the first rows: for others a dictionary costs more than it saves.

    Nested columns are left out: Parquet identifies their leaves, not their outer names.
    """
    if rows.num_rows < _MIN_ROWS:
        return []
    sample = rows.slice(0, _SAMPLE_ROWS)
    found = []
    for each in rows.schema:
        if not (pa.types.is_nested(each.type) or pa.types.is_boolean(each.type) or pa.types.is_null(each.type)):
            distinct = pc.count_distinct(sample.column(each.name), mode="all").as_py()
            if distinct <= sample.num_rows // 4:
                found.append(each.name)
    return found
