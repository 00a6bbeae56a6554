"""Removes what is no longer needed: old log entries, replaced data files, and deletion vectors of earlier versions.

A file is removed if no commit within the history refers to it, by the times at which the log removed it. delta-rs'
VACUUM knows no files of vectors and refuses tables with most features, so it is used for the log only.
"""

from __future__ import annotations

import logging
import re
import time
from contextlib import suppress

from deltalake.exceptions import DeltaError

from cdc_core.lake.delta.file_columns import CHANGES
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.schema.lake_schema import file_hours

# A file of vectors is written just before its commit, so one of this age that no commit names is not needed.
_UNNAMED_HOURS = 24
# The second is what a run left that was killed while it made a commit.
_TEMPORARY = re.compile(r"deletion_vector_[0-9a-f-]+\.bin|_commit_[0-9a-f-]+\.json\.tmp")
_DATA = re.compile(r".+\.parquet")

_log = logging.getLogger(__name__)


def clean(table: DeltaTable, history_minutes: int) -> None:
    """Remove log entries older than ``history_minutes``, and data files replaced as long ago, at least an hour.

    Data files that no commit references are not removed.
    """
    hours = file_hours(history_minutes)
    _clean_log(table)
    _remove(table, _TEMPORARY, hours, _UNNAMED_HOURS)
    _remove(table, _DATA, hours, None)
    _remove_changes(table, hours)
    table.forget_removed(1000 * (time.time() - 3600 * hours))


def vacuum(table: DeltaTable, history_minutes: int, unnamed_hours: int) -> int:
    """``clean``, and remove unreferenced files older than ``unnamed_hours``; returns the number of files removed."""
    hours = file_hours(history_minutes)
    oldest = max(hours, unnamed_hours)
    _clean_log(table, checkpoint=True)
    removed = _remove(table, _TEMPORARY, hours, oldest) + _remove(table, _DATA, hours, oldest)
    return removed + _remove_changes(table, hours)


def _remove_changes(table: DeltaTable, hours: int) -> int:
    """Remove change data files of this age; returns their number. No later commit names a file once it is written."""
    count = 0
    with suppress(FileNotFoundError):
        for name, changed in table.folder.ages(CHANGES):
            if time.time() - changed >= 3600 * hours:
                table.folder.delete(f"{CHANGES}/{name}")
                count += 1
    return count


def _clean_log(table: DeltaTable, *, checkpoint: bool = False) -> None:
    try:
        raw = table.raw()
        if checkpoint:
            raw.create_checkpoint()
        raw.cleanup_metadata()
    except DeltaError as error:
        # Another writer's commit, or a reader's lock: cleaning is not urgent, the next attempt follows.
        name = type(error).__name__
        _log.warning("Old log entries of %s were not removed; the next attempt follows (%s).", table.path, name)
    table.refresh()


def _remove(table: DeltaTable, form: re.Pattern[str], hours: int, unnamed_hours: int | None) -> int:
    """Remove the files whose name has a form, if the table does not need them; returns their number.

    They are not part of the loaded version, and were removed from the log before ``hours``. One that the log does not
    contain belongs to a commit that has not been made, or was removed so long ago that the log has forgotten it:
    it is kept for ``unnamed_hours``, with None for good.
    """
    used = {file.path for file in table.files} | {file.vector.path for file in table.files if file.vector is not None}
    removed, now, count = table.removed, time.time(), 0
    for name, changed in table.folder.ages(""):
        if name in used or not form.fullmatch(name):
            continue
        age = now - removed[name] / 1000 if name in removed else now - changed
        limit = hours if name in removed else unnamed_hours
        if limit is not None and age >= 3600 * limit:
            table.folder.delete(name)
            count += 1
    return count
