"""Removes what is no longer needed: old log entries, replaced data files, and deletion vectors of earlier versions.

delta-rs removes data files that the log replaced long enough ago and that are not part of the table. It knows no files
of vectors, so those are removed here, and so is any other file that no commit references, for tables that have vectors.
"""

from __future__ import annotations

import logging
import re
import time

from deltalake.exceptions import DeltaError

from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.schema.lake_schema import file_hours

# A file of vectors is written just before its commit, so one of this age that no commit names is not needed.
_UNNAMED_HOURS = 24
# The second is what a run left that was killed while it made a commit.
_VECTORS = re.compile(r"deletion_vector_[0-9a-f-]+\.bin|_commit_[0-9a-f-]+\.json\.tmp")
_DATA = re.compile(r".+\.parquet")

_log = logging.getLogger(__name__)


def clean(table: DeltaTable, history_minutes: int) -> None:
    """Remove log entries older than ``history_minutes``, and data files replaced as long ago, at least an hour.

    Files are found by the log's remove actions: data files that no commit references are not removed.
    """
    raw, hours = table.raw(), file_hours(history_minutes)
    try:
        raw.vacuum(hours, dry_run=False, enforce_retention_duration=False)
        raw.cleanup_metadata()
    except DeltaError as error:
        _report(table, error)
    table.refresh()
    if table.has_deletion_vectors:
        _remove(table, _VECTORS, hours, _UNNAMED_HOURS)
        table.forget_removed(1000 * (time.time() - 3600 * hours))


def vacuum(table: DeltaTable, history_minutes: int, unnamed_hours: int) -> int:
    """``clean``, and remove unreferenced files older than ``unnamed_hours``; returns the number of files removed."""
    raw, hours = table.raw(), file_hours(history_minutes)
    oldest = max(hours, unnamed_hours)
    try:
        gone = set(raw.vacuum(hours, dry_run=False, enforce_retention_duration=False))
        if not table.has_deletion_vectors:
            gone |= set(raw.vacuum(oldest, dry_run=False, enforce_retention_duration=False, full=True))
        raw.create_checkpoint()
        raw.cleanup_metadata()
    except DeltaError as error:
        _report(table, error)
        gone = set()
    table.refresh()
    removed = len(gone)
    if table.has_deletion_vectors:
        removed += _remove(table, _VECTORS, hours, oldest) + _remove(table, _DATA, hours, oldest)
    return removed


def _remove(table: DeltaTable, form: re.Pattern[str], hours: int, unnamed_hours: int) -> int:
    """Remove the files whose name has a form, if the table does not need them; returns their number.

    They are not part of the loaded version, and were removed from the log before ``hours``. One that the log does not
    contain belongs to a commit that has not been made, or was removed so long ago that the log has forgotten it.
    """
    used = {file.path for file in table.files} | {file.vector.path for file in table.files if file.vector is not None}
    removed, now, count = table.removed, time.time(), 0
    for name, changed in table.folder.ages(""):
        if name in used or not form.fullmatch(name):
            continue
        age = now - removed[name] / 1000 if name in removed else now - changed
        if age >= 3600 * (hours if name in removed else unnamed_hours):
            table.folder.delete(name)
            count += 1
    return count


def _report(table: DeltaTable, error: DeltaError) -> None:
    # Another writer's commit, or a reader's lock: cleaning is not urgent, the next attempt follows.
    _log.warning("Old files of %s were not removed; the next attempt follows (%s).", table.path, type(error).__name__)
