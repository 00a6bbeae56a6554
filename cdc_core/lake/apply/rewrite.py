"""The result of applying a slice to a lake table by copy-on-write, and helpers to build its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.names import RESCUED
from cdc_core.lake.rows.images import chosen, column, rescued_of, texts_of

FILE_BYTES = 128 * 2**20
"""New rows are added to a file up to about this size; beyond it they are written to separate files."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The removed files and the rows that replace them, one table per file.

    ``rows`` is read while it is iterated, once. ``removed`` and the counts are known before.
    """

    removed: list[DataFile]
    rows: Iterator[pa.Table]
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def bytes_rewritten(self) -> int:
        """Bytes of the removed files."""
        return sum(file.size for file in self.removed)

    @property
    def changes_nothing(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.removed or self.inserted or self.updated or self.deleted)


def with_kept_values(rows: pa.Table, keep: dict[str, np.ndarray], lake: pa.Table) -> pa.Table:
    """Return rows with the values that they keep taken from the corresponding lake rows, including texts.

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
    """Return the file that new rows are added to: the smallest rewritten one, unless it would become too large."""
    if not files or not fresh.num_rows:
        return None
    smallest = min(files, key=lambda file: file.size)
    return smallest if smallest.size + fresh.num_rows * _row_bytes(files, fresh) <= file_bytes else None


def parts_of(rows: pa.Table, files: Sequence[DataFile], file_bytes: int) -> Iterator[pa.Table]:
    """Yield rows in tables that result in files of at most about ``file_bytes``."""
    step = max(1, int(file_bytes / _row_bytes(files, rows)))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def _row_bytes(files: Sequence[DataFile], rows: pa.Table) -> float:
    """Return the bytes per row of a file, from the existing files, or from the rows in memory, which are larger."""
    held = sum(file.rows for file in files)
    size = sum(file.size for file in files) / held if held else rows.nbytes / max(1, rows.num_rows)
    return max(1.0, size)
