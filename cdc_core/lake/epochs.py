"""Epochs: an LSN or a transaction id has a meaning on one history of one server only.

The record of the stream (``stream_log``) numbers the parts of the stream that a lake has been filled from: the first is
epoch 0, and what does not continue it (another server or history, or a gap) begins the next. The *scope* of a position
is the slot's name in epoch 0 and ``<slot>@<epoch>`` from 1 on; slot names do not contain ``@``. Every position's id
contains its scope (``positions``), so with a new epoch no table has a position, a snapshot in force or a merged LSN any
more, and each is read again.

Change rows of all epochs are in one changelog, for its users. The column ``__epoch``, added with the first row of epoch
1, tells them apart; null is epoch 0. Whoever reads a changelog to decide something reads it through ``EpochRows``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Ints
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.names import EPOCH


class ChangeRows(Protocol):
    """The rows of a changelog, or of one epoch of it, by file."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that ``read`` returns."""

    @property
    def files(self) -> list[DataFile]:
        """The files; their sizes and statistics may include rows that ``read`` leaves out."""

    def read(self, file: DataFile, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of one file, or ``columns`` of them."""

    def batches(self, file: DataFile) -> Iterator[pa.Table]:
        """Yield the rows of one file, a few megabytes at a time."""


def scope_of(slot: str, epoch: int) -> str:
    """Return the scope of positions of a slot in an epoch."""
    return f"{slot}@{epoch}" if epoch else slot


def epoch_of(scope: str) -> int:
    """Return the epoch of a scope."""
    return int(scope.rpartition("@")[2]) if "@" in scope else 0


def slot_of(scope: str) -> str:
    """Return the slot's name of a scope."""
    return scope.partition("@")[0]


def epochs_of(rows: pa.Table) -> Ints:
    """Return each change row's epoch. Shape: table[N] -> int64[N]."""
    if EPOCH not in rows.schema.names:
        return np.zeros(rows.num_rows, dtype=np.int64)
    return np.asarray(rows.column(EPOCH).fill_null(0).to_numpy())


@dataclass(frozen=True, slots=True)
class EpochRows:
    """The rows of one epoch of a changelog, without the column ``__epoch``."""

    changelog: DeltaTable
    epoch: int
    schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        whole = self.changelog.schema
        object.__setattr__(self, "schema", pa.schema([column for column in whole if column.name != EPOCH]))

    @classmethod
    def of(cls, changelog: DeltaTable, scope: str) -> EpochRows:
        """The rows of a scope's epoch."""
        return cls(changelog, epoch_of(scope))

    @property
    def files(self) -> list[DataFile]:
        """The files that may have rows of the epoch."""
        if not self._is_mixed:
            return self.changelog.files if self.epoch == 0 else []
        return [file for file in self.changelog.files if self._may_hold(file)]

    def read(self, file: DataFile, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of the epoch in one file, or ``columns`` of them."""
        if not self._is_mixed:
            return self.changelog.read(file, columns)
        rows = self.changelog.read(file, None if columns is None else [*columns, EPOCH])
        mine = epochs_of(rows) == self.epoch
        rows = rows.drop_columns([EPOCH])
        return rows if mine.all() else rows.filter(pa.array(mine))

    def batches(self, file: DataFile) -> Iterator[pa.Table]:
        """Yield the rows of the epoch in one file, a few megabytes at a time."""
        for rows in self.changelog.batches(file):
            if self._is_mixed:
                mine = epochs_of(rows) == self.epoch
                yield rows.drop_columns([EPOCH]).filter(pa.array(mine))
            else:
                yield rows
            del rows  # it may be large

    def is_only(self, file: DataFile) -> bool:
        """Whether, by the log's statistics, every row of a file is of the epoch."""
        if not self._is_mixed:
            return True
        bounds = file.minimum.get(EPOCH), file.maximum.get(EPOCH), file.nulls.get(EPOCH)
        return bounds == (self.epoch, self.epoch, 0)

    @property
    def _is_mixed(self) -> bool:
        return EPOCH in self.changelog.schema.names

    def _may_hold(self, file: DataFile) -> bool:
        low, high = file.minimum.get(EPOCH), file.maximum.get(EPOCH)
        if low is None or high is None:
            return True
        # Rows without a number are of epoch 0, and statistics do not include them.
        return bool(low <= self.epoch <= high) or self.epoch == 0
