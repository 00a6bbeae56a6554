"""Data files of one table: read and written by Arrow, with the statistics that pruning needs."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cdc_core.lake.delta.bounds import Bounds
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.folder import NO_ACCESS, Folder
from cdc_core.lake.delta.log_text import unreadable_file
from cdc_core.lake.delta.pages import NOT_READ, Pages
from cdc_core.lake.delta.physical import renamed
from cdc_core.lake.delta.row_copies import RowCopies
from cdc_core.lake.delta.row_groups import (
    PAGE_ROWS,
    Layout,
    bytes_in_memory,
    has_large_values,
    parquet_writer,
    repeated_columns,
    row_groups,
    stepwise,
)
from cdc_core.storage_faults import storage_fault

_DICTIONARY_ROWS = 100_000
_MOST_PAGED = 64
# In memory, without compression: a file is read as a whole where some of its rows change.
FILE_BYTES = 256 << 20
FILE_ROWS = 1_000_000
BATCH_ROWS = 2_048
_BATCH_BYTES = 8 << 20
# Of rows in hand: the next rounds change those of the last ones more often than others.
_COPIED_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns to be read or written: as the table names and types them, and as its files name them.

    ``hidden``: how many of them, the last ones, are no columns of the table and have no statistics in its log.
    """

    schema: pa.Schema
    stored: pa.Schema
    hidden: int = 0

    def shown(self, rows: pa.Table) -> pa.Table:
        """Return rows without the hidden columns."""
        return rows.select(self.schema.names[: -self.hidden]) if self.hidden else rows

    def of(self, file_rows: pa.Table) -> pa.Table:
        """Return rows of a file in the table's schema; a column missing in it is null."""
        rows = conform(file_rows, self.stored)
        return rows if self.stored.equals(self.schema) else renamed(rows, self.schema)

    def to_file(self, rows: pa.Table) -> pa.Table:
        """Return rows of the table's schema as its files have them."""
        ready = conform(rows, self.schema)
        return ready if self.stored is self.schema else renamed(ready, self.stored)

    def missing(self, rows: int) -> pa.Table:
        """Return rows of a file that has none of the columns."""
        return pa.Table.from_arrays([pa.nulls(rows, field.type) for field in self.schema], schema=self.schema)

    def names_in(self, parquet: pq.ParquetFile) -> list[str]:
        """Return the names of those columns that a file has."""
        have = set(parquet.schema_arrow.names)
        return [name for name in self.stored.names if name in have]


def _stored_names(names: list[str], columns: Columns) -> list[str]:
    stored = dict(zip(columns.schema.names, columns.stored.names, strict=True))
    return [stored[name] for name in names]


def _live(rows: pa.Table, live: np.ndarray | None) -> pa.Table:
    return rows if live is None else rows.filter(pa.array(live))


def _in_steps(parquet: pq.ParquetFile, names: list[str], most: int) -> Iterator[pa.Table]:
    facts = parquet.metadata
    few = _BATCH_BYTES * max(1, facts.num_rows) // max(1, bytes_in_memory(facts))
    return stepwise(parquet, names, max(1, min(most, few)))


class ParquetFiles:
    """The Parquet files in a table's folder. Does not know which of them are part of the table, nor their vectors."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._pages: OrderedDict[str, Pages] = OrderedDict()
        self.copies: RowCopies | None = None

    def read(self, file: DataFile, columns: Columns, live: np.ndarray | None) -> pa.Table:
        """Return the rows of a file, or those that are ``live``. Shape: bool[rows] -> table[N]"""
        with self.opened(file) as parquet:
            rows = parquet.read(columns=columns.names_in(parquet), use_threads=False)
        return _live(columns.of(rows), live)

    def read_at(self, file: DataFile, columns: Columns, places: np.ndarray) -> pa.Table:
        """Return the rows at ascending positions of a file. Shape: int64[P] -> table[P]

        From the file's copy, if ``copies`` are made. Few rows of a local file are read by their pages if it has a page
        index, others by their row groups.
        """
        if not len(places):
            return columns.missing(0)
        copied = self._copied(file, columns, places)
        if copied is not None:
            return copied
        if self._folder.is_local and file.rows >= PAGE_ROWS:
            with suppress(*NOT_READ):
                pages = self._paged(file)
                have = set(pages.names)
                names = [name for name in columns.stored.names if name in have]
                if not names:
                    return columns.missing(len(places))
                if pages.are_cheaper(names, places):
                    return columns.of(pages.read(names, places))
        with self.opened(file) as parquet:
            names, facts = columns.names_in(parquet), parquet.metadata
            if not names:
                return columns.missing(len(places))
            ends = np.cumsum([facts.row_group(number).num_rows for number in range(facts.num_row_groups)])
            group = np.searchsorted(ends, places, side="right")
            parts = []
            for number in np.unique(group).tolist():
                mine = places[group == number] - (ends[number - 1] if number else 0)
                rows = parquet.read_row_group(number, columns=names, use_threads=False)
                # One group at a time: a table has many times more rows than a slice changes. In the table's types:
                # Arrow cannot take rows of views, as which some writers' files are read.
                parts.append(columns.of(rows).take(pa.array(mine)))
        return pa.concat_tables(parts) if parts else columns.schema.empty_table()

    def _copied(self, file: DataFile, columns: Columns, places: np.ndarray) -> pa.Table | None:
        """As ``read_at``, from the file's copy, which is made if it is due; None if there is none."""
        if self.copies is None or not file.rows:
            return None
        name = self._name(file)
        copy = self.copies.of(name)
        if copy is None and self.copies.is_due(name, min(len(places) * PAGE_ROWS, file.rows), file.rows, file.size):
            with self.opened(file) as parquet:
                groups = (parquet.read_row_group(n, use_threads=False) for n in range(parquet.num_row_groups))
                copy = self.copies.made(name, groups)
        if copy is None:
            return None
        have = set(copy.names)
        names = [name for name in columns.stored.names if name in have]
        if not names:
            return columns.missing(len(places))
        rows = columns.of(copy.take(names, places))
        self.copies.give_back(copy)
        return rows

    def _name(self, file: DataFile) -> str:
        return f"{self._folder.path}/{file.path}"

    def _paged(self, file: DataFile) -> Pages:
        """Return the pages of a local file; what is known of them is kept for files that were used lately."""
        pages = self._pages.pop(file.path, None)
        if pages is None:
            pages = Pages(memoryview(self._folder.open_input(file.path).read_buffer()).cast("B"))
        self._pages[file.path] = pages
        if len(self._pages) > _MOST_PAGED:
            self._pages.popitem(last=False)
        return pages

    def batches(
        self, file: DataFile, columns: Columns, live: np.ndarray | None, most: int = BATCH_ROWS
    ) -> Iterator[pa.Table]:
        """As ``read``, in the file's order, a few megabytes and at most so many rows at a time."""
        at = 0
        with self.opened(file) as parquet:
            for batch in _in_steps(parquet, columns.names_in(parquet), most):
                start, at = at, at + batch.num_rows
                yield _live(columns.of(batch), None if live is None else live[start:at])
                del batch  # a row may be large, and would stay in memory while the next one is read

    def row_count(self, file: DataFile) -> int:
        """Return the number of rows from the file's footer."""
        with self.opened(file) as parquet:
            return int(parquet.metadata.num_rows)

    def is_all_null(self, file: DataFile, columns: Columns) -> bool:
        """Whether the columns have no value in a file, by the statistics in its footer; False if they are missing."""
        names = set(columns.stored.names)
        with self.opened(file) as parquet:
            facts = parquet.metadata
            for number in range(facts.num_row_groups):
                group = facts.row_group(number)
                for at in range(group.num_columns):
                    leaf = group.column(at)
                    if leaf.path_in_schema.split(".")[0] not in names:
                        continue
                    known = leaf.statistics
                    if known is None or not known.has_null_count or known.null_count != leaf.num_values:
                        return False
        return True

    def bytes_in_memory(self, file: DataFile) -> int:
        """Estimate the size of a file's rows in memory, from its footer; values of a dictionary are counted once."""
        copy = None if self.copies is None else self.copies.of(self._name(file))
        if copy is not None:
            return len(copy.mapped)
        with self.opened(file) as parquet:
            return bytes_in_memory(parquet.metadata)

    def read_as(self, file: DataFile, columns: Columns) -> pa.Table:
        """Return the rows of a file that was written under these columns and not committed yet."""
        with self._folder.open_input(file.path, file.size) as source:
            return columns.of(pq.ParquetFile(source).read(columns=columns.stored.names, use_threads=False))

    def batches_as(self, file: DataFile, columns: Columns) -> Iterator[pa.Table]:
        """As ``read_as``, in the file's order, a few megabytes at a time."""
        with self._folder.open_input(file.path, file.size) as source:
            for batch in _in_steps(pq.ParquetFile(source), columns.stored.names, BATCH_ROWS):
                yield columns.of(batch)
                del batch

    def write(self, rows: pa.Table, columns: Columns, name: str) -> DataFile:
        """Write rows to a new file."""
        ready = conform(rows, columns.schema)
        layout, is_large = Layout.of(ready, is_local=self._folder.is_local), has_large_values(ready)
        path = f"{name}-{uuid.uuid4()}.{layout.compression}.parquet"
        # With few rows a dictionary costs more time and bytes than it saves.
        has_dictionary = ready.num_rows >= _DICTIONARY_ROWS
        stored = columns.to_file(ready)
        if layout.omits_nulls:
            used = [at for at, values in enumerate(stored.columns) if values.null_count < len(values)]
            stored = stored.select(used or [0])  # a file without any column would have no rows
        with self._folder.open_output(path) as target:
            with parquet_writer(target, stored.schema, layout, has_dictionary) as writer:
                writer.write_table(stored)
            size = target.tell()
        if self.copies is not None and not is_large and ready.nbytes <= _COPIED_BYTES:
            self.copies.made(f"{self._folder.path}/{path}", [stored])
        if is_large:
            pa.default_memory_pool().release_unused()
        bounds = Bounds()
        bounds.cover(columns.shown(ready))
        return DataFile(path, size, ready.num_rows, bounds.minimum, bounds.maximum, bounds.nulls)

    def write_stream(
        self,
        batches: Iterable[pa.RecordBatch],
        columns: Columns,
        rows_per_file: int = FILE_ROWS,
        bytes_per_file: int | None = FILE_BYTES,
        name: str = "part",
    ) -> list[DataFile]:
        """Write batches of the table's schema to new files; see ``DeltaTable.write_stream``."""
        files: list[DataFile] = []
        groups = row_groups(batches, columns.schema)
        rows = next(groups, None)
        while rows is not None:
            layout = Layout.of(rows, is_local=self._folder.is_local)
            path = f"{name}-{uuid.uuid4()}.{layout.compression}.parquet"
            bounds, count, octets, is_large = Bounds(), 0, 0, has_large_values(rows)
            encoded = _stored_names(repeated_columns(rows), columns)
            with self._folder.open_output(path) as target:
                with parquet_writer(target, columns.stored, layout, encoded) as writer:
                    while rows is not None and count < rows_per_file and octets < (bytes_per_file or octets + 1):
                        writer.write_table(columns.to_file(rows))
                        bounds.cover(columns.shown(rows))
                        count, octets = count + rows.num_rows, octets + rows.nbytes
                        rows = None
                        if is_large:
                            pa.default_memory_pool().release_unused()
                        rows = next(groups, None)
                        if rows is not None and has_large_values(rows) != is_large:
                            break
                size = target.tell()
            files.append(DataFile(path, size, count, bounds.minimum, bounds.maximum, bounds.nulls))
        return files

    def write_one(self, batches: Iterable[pa.RecordBatch], columns: Columns, group_bytes: int, name: str) -> DataFile:
        """Write batches of the table's schema to one file; see ``DeltaTable.write_one``.

        Whatever the size of their values: ``write_stream`` begins another file where large values begin or end.
        """
        path = f"{name}-{uuid.uuid4()}.zstd.parquet"
        count = 0
        with (
            self._folder.open_output(path) as target,
            parquet_writer(target, columns.stored, Layout(statistics=False), False) as writer,
        ):
            for rows in row_groups(batches, columns.schema, group_bytes):
                writer.write_table(columns.to_file(rows))
                count += rows.num_rows
                del rows
        return DataFile(path, self._folder.size(path), count)

    @contextmanager
    def opened(self, file: DataFile) -> Iterator[pq.ParquetFile]:
        """Open a data file. Raises UnreadableError if it does not exist or cannot be read."""
        try:
            with self._folder.open_input(file.path, file.size) as source:
                yield pq.ParquetFile(source)
        except (OSError, pa.ArrowInvalid) as error:
            # Arrow says so of damaged pages of a file, and of what a store answers, too.
            is_damaged = isinstance(error, pa.ArrowInvalid) or (self._folder.is_local and not error.errno)
            if not isinstance(error, NO_ACCESS) and not is_damaged and storage_fault(error) is None:
                raise
            raise unreadable_file(self._folder.path, file.path, error) from None
