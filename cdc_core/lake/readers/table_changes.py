"""The change events of a table between two positions, from its changelog."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Bools
from cdc_core.errors import LakeError
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.folder import delta_uri
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import epoch_of, epochs_of, scope_of, slot_of
from cdc_core.lake.names import OWN_NAMES
from cdc_core.lake.positions import changelog_app, expired_to_app
from cdc_core.lake.schema.change_columns import SCHEMA_VERSION, empty_changes
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId


class ChangePosition(NamedTuple):
    """A position between two transactions: all changes up to the commit LSN, of an epoch and those before it."""

    epoch: int
    lsn: int

    def __str__(self) -> str:
        return f"{Lsn(self.lsn)} of epoch {self.epoch}" if self.epoch else str(Lsn(self.lsn))


@dataclass(frozen=True)
class TableChanges:
    """The changes of a table. A row has ``__op`` (c, u, d, t), its position, and the structs ``before`` and ``after``.

    A value that an event does not have (unchanged TOAST) is null, and its column is named in ``__unchanged``. Rows that
    a snapshot read are not changes. Changes are visible once they are durable, which is before they are merged, and
    also those that a quality rule refused. ``scope`` is that of the lake's positions now (``epochs``).

    A changelog is created by a table's first change: before, there are no changes, in columns after those of the lake
    table at ``lake_path``.
    """

    table: TableId
    path: str
    lake_path: str
    scope: str

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the changelog. Raises LakeError if the lake has no such table."""
        if self._opened is not None:
            return self._opened.schema
        lake = DeltaTable.open(self.lake_path)
        if lake is None:
            raise LakeError(
                f"The lake has no table {self.table}: {delta_uri(self.lake_path)} does not exist.", "Check its name."
            )
        row = pa.schema([field for field in lake.schema if field.name not in OWN_NAMES])
        return pa.schema([*empty_changes(row).schema, (SCHEMA_VERSION, pa.int64())])

    @property
    def identity(self) -> str:
        """The changelog's id in Delta, of which one that was created again has another; empty if there is none yet."""
        return "" if self._opened is None else self._opened.identity

    @property
    def oldest(self) -> ChangePosition:
        """The position from which on all changes are kept: earlier ones were removed by their age."""
        known = ((epoch, self._expired_to(epoch)) for epoch in reversed(range(epoch_of(self.scope) + 1)))
        return next((ChangePosition(epoch, lsn) for epoch, lsn in known if lsn), ChangePosition(0, 0))

    @property
    def newest(self) -> ChangePosition:
        """The position of the last complete transaction with a change of the table."""
        for epoch in reversed(range(epoch_of(self.scope) + 1)):
            lsn = self._txn(changelog_app(scope_of(slot_of(self.scope), epoch), self.table))
            if lsn is not None:
                return max(ChangePosition(epoch, lsn), self.oldest)
        return self.oldest

    def at(self, lsn: Lsn) -> ChangePosition:
        """The position at an LSN of the present epoch."""
        return ChangePosition(epoch_of(self.scope), lsn)

    def files(self, start: ChangePosition, end: ChangePosition) -> list[str]:
        """Return the files that may have changes after ``start``, up to ``end``.

        Raises LakeError if changes after ``start`` were removed by their age.
        """
        if start < self.oldest:
            raise LakeError(
                f"Changes of {self.table} after {start} were removed from its changelog, up to {self.oldest}.",
                "Read the table itself, and its changes from the LSN of that round on; "
                "wal2lake.changelog.retention.days sets how long changes are kept.",
            )
        return [] if self._opened is None else [file.path for file in self._opened.files if _may_hold(file, start, end)]

    def batches(
        self, start: ChangePosition, end: ChangePosition, schema: pa.Schema, files: Collection[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the changes after ``start``, up to ``end``, in some of ``files``, in columns of ``schema``.

        A column that the changelog got later is left out. Within a file, the changes of a transaction are in order.
        """
        opened = self._opened
        for file in [] if opened is None else opened.files:
            if opened is not None and file.path in files:
                for rows in opened.batches(file):
                    yield from conform(rows.filter(pa.array(_between(rows, start, end))), schema).to_batches()

    def arrow(self, since: Lsn | None = None, upto: Lsn | None = None) -> pa.Table:
        """Return the changes with a commit LSN after ``since`` (None: from the oldest on), up to ``upto`` (the newest).

        They are in the order of the stream. Raises LakeError if changes after ``since`` were removed by their age.
        """
        start = self.oldest if since is None else self.at(since)
        end = self.newest if upto is None else min(self.at(upto), self.newest)
        batches = self.batches(start, end, self.schema, set(self.files(start, end)))
        rows = pa.Table.from_batches(list(batches), self.schema)
        lsn, index = (rows.column(name).to_numpy() for name in ("__commit_lsn", "__tx_index"))
        return rows.take(pa.array(np.lexsort((index, lsn, epochs_of(rows)))))

    def _expired_to(self, epoch: int) -> int:
        return self._txn(expired_to_app(scope_of(slot_of(self.scope), epoch), self.table)) or 0

    def _txn(self, app: str) -> int | None:
        return None if self._opened is None else self._opened.txn(app)

    @cached_property
    def _opened(self) -> DeltaTable | None:
        return DeltaTable.open(self.path)


def _may_hold(file: DataFile, start: ChangePosition, end: ChangePosition) -> bool:
    low, high = file.minimum.get("__commit_lsn"), file.maximum.get("__commit_lsn")
    if start.epoch == end.epoch and low is not None and high is not None and (low > end.lsn or high <= start.lsn):
        return False
    return bool(file.maximum.get("__tx_index", 0) >= 0)


def _between(rows: pa.Table, start: ChangePosition, end: ChangePosition) -> Bools:
    """Return which rows are changes after ``start``, up to ``end``. Shape: table[N] -> bool[N]"""
    epoch, lsn = epochs_of(rows), rows.column("__commit_lsn").to_numpy()
    is_later = (epoch > start.epoch) | ((epoch == start.epoch) & (lsn > start.lsn))
    is_past = (epoch < end.epoch) | ((epoch == end.epoch) & (lsn <= end.lsn))
    return np.asarray(is_later & is_past & (rows.column("__tx_index").to_numpy() >= 0))
