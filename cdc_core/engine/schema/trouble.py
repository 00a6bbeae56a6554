"""A table whose Delta tables cannot be used, or cannot hold its rows: what it loses, and what the user can do."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.errors import CdcError, NotUtf8Error, UnreadableError, UnsendableRowError
from cdc_core.lake.paths import LakePaths
from cdc_core.schema.table import TableId


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
    if isinstance(error, UnsendableRowError):
        return Trouble(error.message, f"{error.remedy[:-1]}, {then}: it re-reads the table.")
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
