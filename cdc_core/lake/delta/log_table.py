"""Small Delta tables of wal2lake's own: a few rows a commit, read as a whole."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.folder import Folder
from cdc_core.lake.delta.table import DeltaTable


def log_table(known: DeltaTable | None, path: str, schema: pa.Schema, properties: Mapping[str, str]) -> DeltaTable:
    """``known``, or the table at ``path``, which is created where it is missing.

    An earlier release may have made it: columns that only ``schema`` has are added.
    """
    log = known or DeltaTable.open(path)
    if log is None:
        return DeltaTable.create(path, schema, properties)
    if not set(schema.names) <= set(log.schema.names):
        log.widen(schema)
    return log


def append_rows(log: DeltaTable, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Append rows in one commit. Raises TransientError after repeated conflicts with other writers."""
    made = pa.Table.from_pylist(rows, schema=schema)
    on_conflict(lambda: log.commit([log.write(made)]), log)


def all_rows(log: DeltaTable | None, schema: pa.Schema, kept: dict[str, pa.Table] | None = None) -> pa.Table:
    """Every row of the loaded version in the columns of ``schema``; no rows where there is no table.

    ``kept``: the rows of each file as an earlier call with the same schema has left them, which are not read again;
    afterwards those of this version.
    """
    if log is None or not log.files:
        return schema.empty_table()
    known, found = kept or {}, dict[str, pa.Table]()
    for file in log.files:
        # A file does not change, but which of its rows are deleted does.
        part = known.get(file.path) if file.vector is None else None
        found[file.path] = conform(log.read(file), schema) if part is None else part
    if kept is not None:
        kept.clear()
        kept.update({file.path: found[file.path] for file in log.files if file.vector is None})
    return pa.concat_tables(found.values())


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
            newest = max((each.name for each in entries if each.name.endswith(".json")), default=None)
        if newest is None:
            return None
        found = (log / newest).stat()
    except OSError:
        return None
    return newest, found.st_ino, found.st_mtime_ns
