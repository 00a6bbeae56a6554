"""A lake table with changes that are not committed yet: parts of a slice are applied to it one after another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable


class WorkingCopy:
    """A ``Content``: the table's files without those that were replaced, and the files that replace them."""

    def __init__(self, table: DeltaTable) -> None:
        self._table = table
        self._files = list(table.files)
        self._given = {file.path for file in self._files}
        self.removed: list[DataFile] = []
        self.inserted = self.updated = self.deleted = 0

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return self._table.schema

    @property
    def files(self) -> list[DataFile]:
        """The files that are in force after the changes so far."""
        return list(self._files)

    @property
    def added(self) -> list[DataFile]:
        """The files that a commit has to add; those in ``removed`` it has to remove."""
        return [file for file in self._files if file.path not in self._given]

    def read(self, file: DataFile, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of one file; all columns or those named."""
        return self._table.read(file, columns)

    def replace(self, removed: Iterable[DataFile], added: Iterable[DataFile]) -> None:
        """Put files in the place of others. A file that was never committed is only forgotten; VACUUM removes it."""
        gone = {file.path for file in removed}
        self.removed += [file for file in self._files if file.path in gone & self._given]
        self._files = [file for file in self._files if file.path not in gone] + list(added)
