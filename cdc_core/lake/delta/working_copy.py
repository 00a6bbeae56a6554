"""A lake table with changes that are not committed yet: parts of a slice are applied to it one after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from cdc_core.lake.delta.data_file import DataFile, MarkedRows
from cdc_core.lake.delta.table import DeltaTable


class WorkingCopy:
    """A ``Content``: the table's files without those that were replaced, and the files that replace them."""

    def __init__(self, table: DeltaTable) -> None:
        self._table = table
        self._files = list(table.files)
        self._given = {file.path for file in self._files}
        self.removed: list[DataFile] = []
        self._marks: dict[str, np.ndarray] = {}
        self.inserted = self.updated = self.deleted = 0

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return self._table.schema

    @property
    def tracked_schema(self) -> pa.Schema:
        """As ``Content.tracked_schema``."""
        return self._table.tracked_schema

    @property
    def files(self) -> list[DataFile]:
        """The files that are in force after the changes so far."""
        return list(self._files)

    @property
    def added(self) -> list[DataFile]:
        """The files that a commit has to add; those in ``removed`` it has to remove."""
        return [file for file in self._files if file.path not in self._given]

    @property
    def identity(self) -> str:
        """The table's id."""
        return self._table.identity

    @property
    def marked(self) -> list[MarkedRows]:
        """The rows that a commit has to mark, in files that it does not remove."""
        return [MarkedRows(file, self._marks[file.path]) for file in self._files if file.path in self._marks]

    def read(self, file: DataFile, columns: Sequence[str] | None = None, *, whole: bool = False) -> pa.Table:
        """Return the rows of one file; all columns or those named."""
        rows, marks = self._table.read(file, columns, whole=whole), self._marks.get(file.path)
        if whole or marks is None:
            return rows
        held, live = self._table.live(file), self.live(file)
        assert live is not None
        return rows.filter(pa.array(live if held is None else live[held]))

    def read_at(self, file: DataFile, places: np.ndarray, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows at positions of a file."""
        return self._table.read_at(file, places, columns)

    def live(self, file: DataFile) -> np.ndarray | None:
        """Return which rows of a file are not marked as deleted, also by the changes so far; None for all."""
        held, marks = self._table.live(file), self._marks.get(file.path)
        if marks is None:
            return held
        live = np.ones(self._table.row_count(file), dtype=bool) if held is None else held.copy()
        live[marks] = False
        return live

    def unmarked(self, file: DataFile, places: np.ndarray) -> np.ndarray:
        """Return which positions of a file are not marked as deleted."""
        found, marks = self._table.unmarked(file, places), self._marks.get(file.path)
        return found if marks is None else found & ~np.isin(places, marks)

    def mark(self, marked: Iterable[MarkedRows]) -> None:
        """Mark rows of files. A file without any other row is removed."""
        for each in marked:
            path = each.file.path
            self._marks[path] = np.union1d(self._marks.get(path, each.places), each.places)
            live = self.live(each.file)
            if live is not None and not live.any():
                self.replace([each.file], [])

    def rewrite_marked(self) -> None:
        """Write the files that have marked rows again without them, a few megabytes at a time."""
        for each in self.marked:
            schema = self.tracked_schema
            rows = (batch for part in self.batches(each.file, schema.names) for batch in part.to_batches())
            self.replace([each.file], self._table.write_stream(rows, schema, self._table.row_count(each.file)))

    def batches(self, file: DataFile, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """As ``read``, a few megabytes at a time."""
        held, live, at = self._table.live(file), self.live(file), 0
        stays = live if held is None or live is None else live[held]
        for rows in self._table.batches(file, names):
            start, at = at, at + rows.num_rows
            yield rows if stays is None else rows.filter(pa.array(stays[start:at]))
            del rows

    def replace(self, removed: Iterable[DataFile], added: Iterable[DataFile]) -> None:
        """Put files in the place of others. A file that was never committed is only forgotten; VACUUM removes it."""
        gone = {file.path for file in removed}
        self.removed += [file for file in self._files if file.path in gone & self._given]
        self._marks = {path: places for path, places in self._marks.items() if path not in gone}
        self._files = [file for file in self._files if file.path not in gone] + list(added)
