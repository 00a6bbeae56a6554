"""One data file of a Delta table, as its log describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc_core.lake.delete_columns import TO_LSN


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a table: its path as in the log, bytes, rows, and minimum and maximum values.

    ``minimum`` and ``maximum`` contain the columns with known statistics; long texts are left out. ``nulls`` counts
    nulls, for the columns for which this is known.
    """

    path: str
    size: int
    rows: int
    minimum: Mapping[str, Any] = field(default_factory=dict)
    maximum: Mapping[str, Any] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_history(self) -> bool:
        """Whether every row is a version that has ended (``delete_columns``): such rows are not changed by merges."""
        return self.rows > 0 and self.nulls.get(TO_LSN) == 0
