"""Texts of a Delta log's actions, and of errors about its files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from typing import Any

from cdc_core.errors import CdcError, UnreadableError
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.deletion_vectors import DeletionVector
from cdc_core.storage_faults import storage_fault

_EXACT = frozenset({int, str, date})


def stats_json(file: DataFile, names: Mapping[str, str]) -> str:
    """Return a file's statistics as in the log; ``names`` are those of columns in it, where they differ.

    With a deletion vector they are those of all rows, also of the deleted ones, which the log says.
    """
    stats = file.stats or _bounds_json(file, names)
    return stats if file.vector is None else f'{stats[:-1]}, "tightBounds": false}}'


def with_vector(file: DataFile, vector: DeletionVector, names: Mapping[str, str]) -> DataFile:
    """Return the file with another vector. The text of its statistics is kept: a commit may name hundreds of files."""
    stats = file.stats or _bounds_json(file, names)
    bounds = file.minimum, file.maximum, file.nulls
    return DataFile(file.path, file.size, file.rows, *bounds, vector, file.base_row_id, file.commit_version, stats)


def _bounds_json(file: DataFile, names: Mapping[str, str]) -> str:
    """Return the statistics of all rows of a file."""
    stats = {
        "numRecords": file.rows,
        "minValues": _bounds(file.minimum, names),
        "maxValues": _bounds(file.maximum, names),
        "nullCount": {names.get(name, name): count for name, count in file.nulls.items()},
    }
    return json.dumps(stats)


def _bounds(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the bounds of types whose text is the same for every writer; others are left out."""
    # By the exact type, so without booleans and datetimes: a commit may name hundreds of files.
    exact = {name: v for name, v in values.items() if type(v) in _EXACT}
    return {names.get(name, name): str(v) if type(v) is date else v for name, v in exact.items()}


def texts(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a commit's metadata as texts, without nulls."""
    return None if metadata is None else {key: str(value) for key, value in metadata.items() if value is not None}


def unreadable_file(path: str, file: str, error: Exception | None = None) -> CdcError:
    """Return the error for a data file of a table's log that does not exist or cannot be read.

    It is a StorageError if the storage does not answer, else an UnreadableError.
    """
    fault = None if error is None else storage_fault(error)
    if fault is not None:
        return fault
    how = "does not exist" if error is None else f"cannot be read ({type(error).__name__})"
    return UnreadableError(
        f"The data file {file} of the Delta table {path} {how}.",
        "Restore it, or re-read the table with wal2lake snapshot.",
        path,
    )


def appends_only(path: str, name: str) -> UnreadableError:
    """Return the error for rows that are changed in a table that another program allows appends to only."""
    return UnreadableError(
        f"Rows of the Delta table {path} cannot be changed: its property {name} is true.", "Remove the property.", path
    )


def unreadable_log(path: str, error: Exception) -> CdcError:
    """Return the error for a table whose log cannot be read: as ``unreadable_file``."""
    return storage_fault(error) or UnreadableError(
        f"The Delta table {path} cannot be read ({type(error).__name__}).",
        "Check its _delta_log, or move the table's folder away and take a new snapshot.",
        path,
    )
