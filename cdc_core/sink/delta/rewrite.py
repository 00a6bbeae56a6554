"""What a slice applied to a lake table by copy-on-write comes to, and the pieces that its rows are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.sink.delta.images import chosen, column, rescued_of, texts_of
from cdc_core.sink.delta.shape import RESCUED
from cdc_core.sink.delta.table import DataFile

FILE_BYTES = 128 * 2**20
"""New rows join a file up to about this size; beyond it they make files of their own."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The files that go and the rows that come in their place, one table a file.

    ``rows`` reads as it is iterated, once. ``removed`` and the counts are known before.
    """

    removed: list[DataFile]
    rows: Iterator[pa.Table]
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def bytes_rewritten(self) -> int:
        """Bytes of the files that go."""
        return sum(file.size for file in self.removed)

    @property
    def changes_nothing(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.removed or self.inserted or self.updated or self.deleted)


def with_kept_values(rows: pa.Table, keep: dict[str, np.ndarray], lake: pa.Table) -> pa.Table:
    """Rows with the columns that they keep taken from lake rows beside them, texts too.

    Shape: rows[N], masks bool[N], lake[N] with the columns of ``keep`` and ``__rescued`` -> rows[N]
    """
    theirs = texts_of(column(lake, RESCUED))
    mine = texts_of(column(rows, RESCUED))
    none = pa.nulls(rows.num_rows, pa.string())
    for name, mask in keep.items():
        at = rows.schema.get_field_index(name)
        value = chosen(mask, column(lake, name), column(rows, name))
        rows = rows.set_column(at, rows.schema.field(at), value)
        if name in theirs:
            mine[name] = chosen(mask, theirs[name], mine.get(name, none))
    at = rows.schema.get_field_index(RESCUED)
    return rows.set_column(at, rows.schema.field(at), rescued_of(mine, rows.num_rows))


def host_of(files: Sequence[DataFile], fresh: pa.Table, file_bytes: int) -> DataFile | None:
    """The file that new rows join: the smallest one that is rewritten anyway, while it has room for them."""
    if not files or not fresh.num_rows:
        return None
    smallest = min(files, key=lambda file: file.size)
    return smallest if smallest.size + fresh.num_rows * _row_bytes(files, fresh) <= file_bytes else None


def parts_of(rows: pa.Table, files: Sequence[DataFile], file_bytes: int) -> Iterator[pa.Table]:
    """Rows in tables that make files of at most about ``file_bytes``."""
    step = max(1, int(file_bytes / _row_bytes(files, rows)))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def _row_bytes(files: Sequence[DataFile], rows: pa.Table) -> float:
    """Bytes a row of a file, by the files there are, or the rows in memory, which take more."""
    held = sum(file.rows for file in files)
    size = sum(file.size for file in files) / held if held else rows.nbytes / max(1, rows.num_rows)
    return max(1.0, size)
