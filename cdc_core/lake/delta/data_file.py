"""One data file of a Delta table, as its log describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cdc_core.lake.delete_columns import TO_LSN
from cdc_core.lake.delta.deletion_vectors import DeletionVector


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a table: its path as in the log, bytes, rows, and minimum and maximum values.

    ``rows`` includes those marked as deleted by its deletion ``vector``. ``minimum`` and ``maximum`` contain the
    columns with known statistics; long texts are left out. ``nulls`` counts nulls, for the columns for which this is
    known. The statistics include rows marked as deleted. ``base_row_id`` and ``commit_version`` are those of a table
    with row tracking (``row_tracking``), once a commit has added the file. ``stats`` is the statistics' text, once a
    commit needed it.
    """

    path: str
    size: int
    rows: int
    minimum: Mapping[str, Any] = field(default_factory=dict)
    maximum: Mapping[str, Any] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)
    vector: DeletionVector | None = None
    base_row_id: int | None = None
    commit_version: int | None = None
    stats: str = field(default="", compare=False, repr=False)

    @property
    def live(self) -> int:
        """The number of rows that are not marked as deleted."""
        return self.rows - (0 if self.vector is None else self.vector.cardinality)

    @property
    def is_history(self) -> bool:
        """Whether every row is a version that has ended (``delete_columns``): such rows are not changed by merges."""
        return self.rows > 0 and self.nulls.get(TO_LSN) == 0


@dataclass(frozen=True, slots=True)
class MarkedRows:
    """Rows of a file that a commit marks as deleted, by their positions in it. Shape: places int64[P], ascending."""

    file: DataFile
    places: np.ndarray
