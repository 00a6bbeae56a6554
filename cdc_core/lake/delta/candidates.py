"""Finds data files that may contain some of the given keys, from the statistics in the table's log alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.row_groups import has_large_values
from cdc_core.lake.rows.images import column

# The log may have truncated timestamps to milliseconds, so readers must allow for the difference.
_CUT = timedelta(milliseconds=1)


class Content(Protocol):
    """A lake table at one version: its columns and data files; the order of rows in a file does not change."""

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, all nullable."""
        ...

    @property
    def tracked_schema(self) -> pa.Schema:
        """The columns, and with row tracking those that files may have for it, as which rows are moved."""
        ...

    @property
    def files(self) -> list[DataFile]:
        """The data files of this version."""
        ...

    @property
    def identity(self) -> str:
        """The table's id in Delta's log."""
        ...

    def read(self, file: DataFile, columns: Sequence[str] | None = None, *, whole: bool = False) -> pa.Table:
        """Return the rows of one file, in the table's types; all columns or those named, also of ``tracked_schema``.

        Without rows that are marked as deleted; with ``whole`` also those.
        """
        ...

    def read_at(self, file: DataFile, places: np.ndarray, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows at ascending positions in a file, none marked as deleted. Shape: int64[P] -> table[P]"""
        ...

    def live(self, file: DataFile) -> Bools | None:
        """Return which rows of a file are not marked as deleted; None for all. Shape: bool[rows]"""
        ...

    def unmarked(self, file: DataFile, places: np.ndarray) -> Bools:
        """Return which positions of a file are not marked as deleted. Shape: int64[P] -> bool[P]"""
        ...

    def batches(self, file: DataFile, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """As ``read``, in the same order, a few megabytes at a time; a larger row is alone."""
        ...


@dataclass(frozen=True, slots=True)
class Ranges:
    """The values that are searched for, in the columns for which statistics can be used. Shape: [R] each."""

    columns: dict[str, pa.Array]
    bounds: dict[str, tuple[Any, Any]]

    @classmethod
    def of(cls, rows: pa.Table, names: Sequence[str]) -> Ranges:
        """Collect the columns ``names`` of rows.

        A column with nulls is left out, because statistics do not include nulls, and one with values that are too large
        for statistics.
        """
        columns, bounds = {}, {}
        for name in names:
            values = column(rows, name)
            is_usable = _ordered(values.type) and len(values) and not values.null_count
            if is_usable and not has_large_values(pa.chunked_array([values])):
                columns[name] = values
                extremes = pc.min_max(values)
                bounds[name] = (extremes["min"], extremes["max"])
        return cls(columns, bounds)

    def may_be_in(self, file: DataFile) -> bool:
        """Whether the file's statistics allow that it contains one of the rows."""
        inside: np.ndarray | None = None
        for name, values in self.columns.items():
            low, high = _bound(file.minimum, name, values.type), _bound(file.maximum, name, values.type)
            if low is None or high is None:
                continue
            if pa.types.is_timestamp(values.type):
                high = pc.add(high, pa.scalar(_CUT, pa.duration(values.type.unit)))
            least, greatest = self.bounds[name]
            if pc.less(greatest, low).as_py() or pc.greater(least, high).as_py():
                return False
            within = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
            mine = np.asarray(within.to_numpy(zero_copy_only=False))
            inside = mine if inside is None else inside & mine
            if not inside.any():
                return False
        return True

    def candidates(self, files: Sequence[DataFile]) -> list[DataFile]:
        """Return the files that may contain one of the rows."""
        return [file for file in files if self.may_be_in(file)]


def _ordered(kind: pa.DataType) -> bool:
    """Types whose order is the same for every writer of statistics (floats have NaN and two zeros)."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal(kind)
    )


def _bound(values: Any, name: str, kind: pa.DataType) -> Any:
    """Return a statistic as a scalar of the column's type; None if there is none or it cannot be converted."""
    statistic = values.get(name)
    if statistic is None:
        return None
    try:
        return pa.scalar(statistic, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
