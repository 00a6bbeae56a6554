"""Minimum and maximum values of a data file's columns, for types whose order is the same in every Delta reader.

Integers, dates and short texts; the others (floats with NaN, timestamps, which logs truncate to milliseconds) are left
out, and so is a column with a text that is too long for the log. Nulls are counted only in the column that identifies
files of ended versions (``delete_columns``).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.lake.delete_columns import TO_LSN
from cdc_core.lake.delta.row_groups import has_large_values

_LEADING = 32
# A uuid has 36 characters, and uuids that contain a time are useful for pruning.
_MAX_TEXT = 36


class Bounds:
    """Collects the bounds over the parts of one file. Nulls are ignored; a column with only nulls has no bounds."""

    def __init__(self) -> None:
        self.minimum: dict[str, Any] = {}
        self.maximum: dict[str, Any] = {}
        self.nulls: dict[str, int] = {}
        self._lost: set[str] = set()

    def cover(self, rows: pa.Table) -> None:
        """Extend the bounds to these rows."""
        if TO_LSN in rows.schema.names:
            self.nulls[TO_LSN] = self.nulls.get(TO_LSN, 0) + rows.column(TO_LSN).null_count
        own = [field for field in rows.schema if field.name.startswith("__")]
        for field in {field.name: field for field in [*list(rows.schema)[:_LEADING], *own]}.values():
            if field.name in self._lost or not _is_ordered(field.type):
                continue
            # Its minimum and maximum would be two copies in Arrow and two in Python.
            if has_large_values(rows.column(field.name)):
                self._lose(field.name)
                continue
            extremes = pc.min_max(rows.column(field.name)).as_py()
            low, high = extremes["min"], extremes["max"]
            if low is None:
                continue
            if isinstance(low, str) and max(len(low), len(high)) > _MAX_TEXT:
                self._lose(field.name)
                continue
            self.minimum[field.name] = min(self.minimum.get(field.name, low), low)
            self.maximum[field.name] = max(self.maximum.get(field.name, high), high)

    def _lose(self, name: str) -> None:
        self._lost.add(name)
        self.minimum.pop(name, None)
        self.maximum.pop(name, None)


def _is_ordered(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_string(kind))
