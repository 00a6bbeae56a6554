"""Reads a table's files for a rewrite: small ones once, large ones ahead of need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeVar

import numpy as np
import pyarrow as pa

from cdc_core.connector_threads import ConnectorThreadPool
from cdc_core.lake.delta.candidates import Content
from cdc_core.lake.delta.data_file import DataFile

Item = TypeVar("Item")
Result = TypeVar("Result")

SMALL_BYTES = 2 * 2**20
LARGE_ROW_BYTES = 16 * 2**20
_HELD_BYTES = 64 * 2**20


class ReadOnce:
    """A table whose small files are read completely on first access and kept, up to 64 MiB in memory.

    For one change of the table, before its commit: it does not follow later versions.
    """

    def __init__(self, content: Content) -> None:
        self._content = content
        self._held: dict[str, pa.Table] = {}
        self._bytes = 0
        self.schema, self.tracked_schema = content.schema, content.tracked_schema
        self.files, self.identity = content.files, content.identity
        self.batches, self.live, self.unmarked = content.batches, content.live, content.unmarked

    def read(self, file: DataFile, columns: Sequence[str] | None = None, *, whole: bool = False) -> pa.Table:
        """As ``Content.read``."""
        rows = None if whole else self._rows(file)
        if rows is None:
            return self._content.read(file, columns, whole=whole)
        return rows.select(self.schema.names if columns is None else list(columns))

    def read_at(self, file: DataFile, places: np.ndarray, columns: Sequence[str] | None = None) -> pa.Table:
        """As ``Content.read_at``."""
        # The ids of a few rows are no reason to read the other columns.
        is_of_rows = columns is None or not set(columns).isdisjoint(self.schema.names)
        rows = self._rows(file) if is_of_rows else self._held.get(file.path)
        if rows is None:
            return self._content.read_at(file, places, columns)
        live = self.live(file)
        rows = rows.select(self.schema.names if columns is None else list(columns))
        return rows.take(pa.array(places if live is None else np.cumsum(live)[places] - 1))

    def _rows(self, file: DataFile) -> pa.Table | None:
        """Return the live rows of a small file; None for another."""
        rows = self._held.get(file.path)
        if rows is None and file.size <= SMALL_BYTES and self._bytes <= _HELD_BYTES:
            rows = self._held[file.path] = self._content.read(file, self.tracked_schema.names)
            self._bytes += rows.nbytes
        return rows


def has_large_rows(file: DataFile) -> bool:
    """Whether the rows of a file are so large that it is read and rewritten a few of them at a time."""
    return file.size > LARGE_ROW_BYTES * max(1, file.rows)


def ahead(items: Sequence[Item], work: Callable[[Item], Result]) -> Iterator[Result]:
    """Yield the results of ``work`` in order; the next one is computed in a thread while the caller uses this one."""
    if len(items) < 2:
        yield from map(work, items)
        return
    with ConnectorThreadPool(1) as pool:
        waiting: Future[Result] = pool.submit(work, items[0])
        for item in items[1:]:
            made, waiting = waiting.result(), pool.submit(work, item)
            yield made
        yield waiting.result()
