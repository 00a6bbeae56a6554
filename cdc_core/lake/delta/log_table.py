"""Small Delta tables of wal2lake's own: a few rows a commit, read as a whole.

A run that re-reads many tables reads such a log several times for each of them, and each adds a file to it. So the rows
of files that were read before are kept in this process: a file never changes, and its name is given once.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.folder import Folder
from cdc_core.lake.delta.table import DeltaTable

# In memory; more than the schema versions of some thousand tables.
_MOST_FILES, _MOST_BYTES = 4_096, 32 << 20


def log_table(known: DeltaTable | None, path: str, schema: pa.Schema, properties: Mapping[str, str]) -> DeltaTable:
    """``known``, or the table at ``path``, which is created where it is missing."""
    return known or DeltaTable.open(path) or DeltaTable.create(path, schema, properties)


def append_rows(log: DeltaTable, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Append rows in one commit. Raises TransientError after repeated conflicts with other writers."""
    made = pa.Table.from_pylist(rows, schema=schema)
    on_conflict(lambda: log.commit([log.write(made)]), log)


def all_rows(log: DeltaTable | None, schema: pa.Schema) -> pa.Table:
    """Every row of the loaded version in the columns of ``schema``; no rows where there is no table."""
    if log is None or not log.files:
        return schema.empty_table()
    return pa.concat_tables([_rows_of(log, file, schema) for file in log.files])


def _rows_of(log: DeltaTable, file: DataFile, schema: pa.Schema) -> pa.Table:
    # Which rows of a file are deleted does change.
    if file.vector is not None:
        return conform(log.read(file), schema)
    name = log.path, file.path
    rows = _kept.get(name)
    if rows is None or not rows.schema.equals(schema):
        rows = conform(log.read(file), schema)
        _kept.put(name, rows)
    return rows


class _KeptRows:
    """The rows of files by table and file, those asked for last; for any thread."""

    def __init__(self, most_files: int, most_bytes: int) -> None:
        self._most_files, self._most_bytes = most_files, most_bytes
        self._bytes = 0
        self._rows: OrderedDict[tuple[str, str], pa.Table] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: tuple[str, str]) -> pa.Table | None:
        with self._lock:
            rows = self._rows.get(name)
            if rows is not None:
                self._rows.move_to_end(name)
            return rows

    def put(self, name: tuple[str, str], rows: pa.Table) -> None:
        with self._lock:
            before = self._rows.pop(name, None)
            self._rows[name] = rows
            self._bytes += rows.nbytes - (0 if before is None else before.nbytes)
            while len(self._rows) > self._most_files or self._bytes > self._most_bytes:
                self._bytes -= self._rows.popitem(last=False)[1].nbytes


_kept = _KeptRows(_MOST_FILES, _MOST_BYTES)


def state_of(path: str) -> tuple[str, int, int] | None:
    """Return the newest entry of a table's log: its name, inode, and time in nanoseconds since 1970.

    What is committed changes it, and so does a table that was removed and created again, restored or moved. None where
    that cannot be told cheaply: there is no log, or it is in an object store.
    """
    folder = Folder(path)
    if not folder.is_local:
        return None
    log = Path(folder.uri) / "_delta_log"
    try:
        with os.scandir(log) as entries:
            newest = max((entry.name for entry in entries if entry.name.endswith(".json")), default=None)
        if newest is None:
            return None
        status = (log / newest).stat()
    except OSError:
        return None
    return newest, status.st_ino, status.st_mtime_ns
