"""Least and greatest values of a data file's columns, as far as every Delta reader agrees upon their order.

Whole numbers, dates and short texts; the others (floats with NaN, instants, which logs cut to milliseconds) are left
out, and so is a column with a text too long to be worth a place in the log. Nulls are counted in the one column by
which files of ended versions are told (``delete_mode``).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.sink.delta.delete_mode import TO_LSN

_LEADING = 32
# A uuid is 36 characters long, and those made by time are worth pruning by.
_MAX_TEXT = 36


class Bounds:
    """Gathers the bounds over the parts of one file. Nulls count for nothing; a column of nulls alone has no bounds."""

    def __init__(self) -> None:
        self.minimum: dict[str, Any] = {}
        self.maximum: dict[str, Any] = {}
        self.nulls: dict[str, int] = {}
        self._lost: set[str] = set()

    def cover(self, rows: pa.Table) -> None:
        """Let the bounds hold for these rows too."""
        if TO_LSN in rows.schema.names:
            self.nulls[TO_LSN] = self.nulls.get(TO_LSN, 0) + rows.column(TO_LSN).null_count
        own = [each for each in rows.schema if each.name.startswith("__")]
        for each in {each.name: each for each in [*list(rows.schema)[:_LEADING], *own]}.values():
            if each.name in self._lost or not _is_ordered(each.type):
                continue
            found = pc.min_max(rows.column(each.name)).as_py()
            low, high = found["min"], found["max"]
            if low is None:
                continue
            if isinstance(low, str) and max(len(low), len(high)) > _MAX_TEXT:
                self._lost.add(each.name)
                self.minimum.pop(each.name, None)
                self.maximum.pop(each.name, None)
                continue
            self.minimum[each.name] = min(self.minimum.get(each.name, low), low)
            self.maximum[each.name] = max(self.maximum.get(each.name, high), high)


def _is_ordered(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_string(kind))
