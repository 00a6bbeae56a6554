"""A table whose Delta tables cannot be used, or cannot hold its rows: what it loses, and what the user can do."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cdc_core.errors import (
    CdcError,
    LimitExceededError,
    NotJudgedError,
    NotUtf8Error,
    SharedFolderError,
    UnreadableError,
    UnsendableRowError,
)
from cdc_core.lake import LakePaths
from cdc_core.schema import TableId


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a table is paused. ``loses_changes``: its changelog cannot take its changes, which are not kept."""

    reason: str
    remedy: str
    loses_changes: bool = False


def trouble_of(error: CdcError, table: TableId, paths: LakePaths) -> Trouble:
    """Return the trouble described by an error of one of the table's folders."""
    then = f"then run wal2lake replay with {table}"
    if isinstance(error, NotUtf8Error):
        return Trouble(error.message, f"Correct such values in the source, {then}: it re-reads the table.", True)
    if isinstance(error, (UnsendableRowError, NotJudgedError, LimitExceededError)):
        return Trouble(error.message, f"{error.remedy[:-1]}, {then}: it re-reads the table.")
    if isinstance(error, SharedFolderError):
        # Its changelog's folder is the other table's, too, or would become this one's and be refused to the other.
        return Trouble(error.message, f"{_only(table)} {error.remedy} {_once_gone(table, paths)}", True)
    folder = error.path if isinstance(error, UnreadableError) else None
    if folder == paths.changelog(table):
        return Trouble(error.message, f"Restore this folder, or move it away, {then}: it re-reads the table.", True)
    if folder == paths.quarantine(table):
        return Trouble(
            error.message,
            f"Restore this folder, {then}; or move it away and run wal2lake snapshot with {table}, which reads the "
            "rows in quarantine, too.",
        )
    return Trouble(error.message, f"Restore this folder, {then}; or move it away, {then}, which re-reads the table.")


def _only(table: TableId) -> str:
    # Debezium's lists of tables ignore case, which would exclude both.
    return f"Exclude it with table.exclude.list=(?-i:{re.escape(str(table))})."


def _once_gone(table: TableId, paths: LakePaths) -> str:
    folders = ", ".join((paths.lake(table), paths.changelog(table), paths.quarantine(table)))
    return (
        f"If the other table was renamed or dropped, move its folders away ({folders}), then run wal2lake replay with "
        f"{table}, which reads it."
    )
