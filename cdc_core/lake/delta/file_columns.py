"""The columns of data files that are read or written: by their names in files, with those of row tracking."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.lake.delta import row_tracking
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.definition import Definition
from cdc_core.lake.delta.parquet_files import Columns
from cdc_core.lake.rows.feed_rows import CHANGE_TYPE

CHANGES = "_change_data"
"""The folder of change data files in a table's folder."""


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The columns of the files of a table with this definition, whose columns are those of ``schema``."""

    definition: Definition
    schema: pa.Schema

    @property
    def tracked_schema(self) -> pa.Schema:
        """The columns, and with row tracking those with the ids and commit versions that rows keep."""
        names = self.definition.row_tracking
        return pa.schema([*self.schema, *row_tracking.columns(names)]) if names else self.schema

    def named(self, names: Sequence[str] | None) -> Columns:
        """Return the columns of ``tracked_schema`` with these names; without names all of the table."""
        if names is None:
            return self._stored(self.schema, ())
        tracked = [name for name in self.definition.row_tracking if name in names]
        return self._stored(pa.schema([self.schema.field(name) for name in names if name not in tracked]), tracked)

    def of_rows(self, rows: pa.Table) -> Columns:
        """Return the columns of a file of rows, which may have ids and commit versions."""
        return self._stored(self.schema, row_tracking.without_empty(rows, self.definition.row_tracking))

    def of_stream(self, schema: pa.Schema) -> Columns:
        """Return the columns of a file of rows of ``schema``, which may have those of row tracking."""
        tracked = [name for name in self.definition.row_tracking if name in schema.names]
        return self.of_commit(pa.schema([field for field in schema if field.name not in tracked]), tracked)

    def of_commit(self, schema: pa.Schema, tracked: Sequence[str] = ()) -> Columns:
        """Return the columns of files that are written before the commit that puts ``schema`` in force."""
        definition = self.definition
        stored = definition.replaced(schema).stored(schema) if definition.is_mapped else schema
        return _with_row_ids(schema, stored, tracked)

    def of_rows_of_commit(self, rows: pa.Table, schema: pa.Schema) -> Columns:
        """As ``of_rows``, under the columns of the next commit."""
        return self.of_commit(schema, row_tracking.without_empty(rows, self.definition.row_tracking))

    def of_changes(self, schema: pa.Schema) -> Columns:
        """Return the columns of change data files of a commit after which the table has those of ``schema``."""
        is_same, kind = schema.equals(self.schema), pa.field(CHANGE_TYPE, pa.string())
        columns = self._stored(schema, ()) if is_same else self.of_commit(schema)
        # All are hidden: the log has no statistics of such a file.
        return Columns(columns.schema.append(kind), columns.stored.append(kind), len(schema) + 1)

    def filled(self, rows: pa.Table, file: DataFile, places: np.ndarray) -> pa.Table:
        """Return rows of a file with ids and commit versions, if they have these columns. Shape: int64[N]"""
        return row_tracking.filled(rows, file, places, self.definition.row_tracking)

    def filled_batches(self, batches: Iterable[pa.Table], file: DataFile, places: np.ndarray) -> Iterator[pa.Table]:
        """As ``filled``, for rows in several tables."""
        at = 0
        for rows in batches:
            start, at = at, at + rows.num_rows
            yield self.filled(rows, file, places[start:at])
            del rows  # a row may be large, and would stay in memory while the next one is read

    def _stored(self, schema: pa.Schema, tracked: Sequence[str]) -> Columns:
        return _with_row_ids(schema, self.definition.stored(schema), tracked)


def _with_row_ids(schema: pa.Schema, stored: pa.Schema, tracked: Sequence[str]) -> Columns:
    if not tracked:
        return Columns(schema, stored)
    more = row_tracking.columns(tracked)
    return Columns(pa.schema([*schema, *more]), pa.schema([*stored, *more]), len(tracked))
