"""Removes what is no longer needed: old log entries, replaced data files, and deletion vectors of earlier versions.

A file is removed if no commit within the history refers to it, by the times at which the log removed it. delta-rs'
VACUUM knows no files of vectors and refuses tables with most features, and to clean the log it loads it first.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from deltalake.exceptions import DeltaError

from cdc_core.lake.delta.file_columns import CHANGES
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.delta.vector_log import LOG
from cdc_core.lake.schema.lake_schema import file_minutes

# A file of vectors is written just before its commit, so one of this age that no commit names is not needed.
_UNNAMED_HOURS = 24
_LEAST_MINUTES = 15
# Of entries of a log whose retention is not known: Delta's default.
_KEPT_SECONDS = 30 * 86_400
_TIMES, _MORE_BYTES = 2, 1 << 20
# Checkpoints this share of the history apart are kept for time travel; of a table that changes all the time each may be
# larger than the data, because it names all files that were replaced within the retention.
_CHECKPOINTS = 1 / 3
# Of a log that is kept for longer than versions can be read, for readers of changes.
_CHECKPOINTS_OF_CHANGES = 1 / 24
# The second is what a run left that was killed while it made a commit.
_TEMPORARY = re.compile(r"deletion_vector_[0-9a-f-]+\.bin|_commit_[0-9a-f-]+\.json\.tmp")
_DATA = re.compile(r".+\.parquet")
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint\.parquet")
_OF_VERSION, _DIGITS = re.compile(r"\d{20}\.(json|crc|checkpoint\..+)"), 20

_log = logging.getLogger(__name__)


def clean(table: DeltaTable, history_minutes: int) -> None:
    """Remove log entries older than ``history_minutes``, and replaced data files that are not kept (``_Retention``).

    Of checkpoints few are left. Data files that no commit references are not removed. Files of changes are kept for as
    long as entries of the log, by which they are read.
    """
    kept, log_minutes = _Retention.of(table, history_minutes), _log_minutes(table)
    _clean_log(table, history_minutes)
    _remove(table, kept, {_TEMPORARY: _UNNAMED_HOURS, _DATA: None})
    _remove_changes(table, max(kept.most_minutes, log_minutes))
    table.forget_removed(1000 * (time.time() - 60 * kept.most_minutes))


def vacuum(table: DeltaTable, history_minutes: int, unnamed_hours: int) -> int:
    """``clean``, and remove unreferenced files older than ``unnamed_hours``; returns the number of files removed."""
    kept = _Retention.of(table, history_minutes)
    oldest = max(-(-kept.most_minutes // 60), unnamed_hours)
    _write_checkpoint(table)
    _clean_log(table, history_minutes)
    changes = _remove_changes(table, max(kept.most_minutes, _log_minutes(table)))
    return _remove(table, kept, {_TEMPORARY: oldest, _DATA: oldest}) + changes


@dataclass(frozen=True, slots=True)
class _Retention:
    """How long replaced files are kept: ``most_minutes``, for queries that run; only ``minutes`` beyond ``octets``.

    Within the history versions can be opened, so every file of theirs is kept. After it only a query that has opened
    such a version needs them. A small table that changes all the time would keep hundreds of times its size, and a
    query of it does not take so long.
    """

    most_minutes: int
    minutes: int
    octets: int

    @classmethod
    def of(cls, table: DeltaTable, history_minutes: int) -> _Retention:
        live = sum(file.size for file in table.files)
        minutes = max(history_minutes, _LEAST_MINUTES)
        return cls(file_minutes(history_minutes), minutes, _TIMES * live + _MORE_BYTES)

    def is_over(self, seconds: float, octets: int) -> bool:
        """Whether a file that was replaced so long ago goes, with the bytes of those replaced since and its own."""
        return seconds >= 60 * (self.minutes if octets > self.octets else self.most_minutes)


def _log_minutes(table: DeltaTable) -> int:
    return table.definition.log_minutes or 0


def _remove_changes(table: DeltaTable, minutes: int) -> int:
    """Remove change data files of this age; returns their number. No later commit names a file once it is written."""
    gone = list[str]()
    with suppress(FileNotFoundError):
        listed = table.folder.listed(CHANGES)
        gone = [f"{CHANGES}/{name}" for name, changed, _ in listed if time.time() - changed >= 60 * minutes]
        table.folder.delete(gone)
    return len(gone)


def _write_checkpoint(table: DeltaTable) -> None:
    try:
        table.raw().create_checkpoint()
    except DeltaError as error:
        # Another writer's commit, or a reader's lock: it is not urgent, the next attempt follows.
        name = type(error).__name__
        _log.warning("No checkpoint of %s was written; the next attempt follows (%s).", table.path, name)


def _clean_log(table: DeltaTable, history_minutes: int) -> None:
    """Remove what the log has before its newest checkpoint of a version that need not be read, and most ones since.

    Needed are those of the history, and of the table's own retention of entries. Checkpoints that are less than a share
    of the time after another go, but the newest two: a version is then read from an earlier one on, for all entries are
    there.
    """
    log_minutes = _log_minutes(table)
    seconds = 60 * max(history_minutes, log_minutes) if log_minutes else _KEPT_SECONDS
    apart = 60 * max(history_minutes * _CHECKPOINTS, log_minutes * _CHECKPOINTS_OF_CHANGES)
    listed, now = table.folder.listed(LOG), time.time()
    checkpoints = sorted((changed, name) for name, changed, _ in listed if _CHECKPOINT.fullmatch(name))
    made = {name[:_DIGITS]: changed for name, changed, _ in listed if name.endswith(".json")}
    old = [name for changed, name in checkpoints if made.get(name[:_DIGITS], changed) < now - seconds]
    first = max(old, default="")[:_DIGITS]
    gone = [name for name, _, _ in listed if _OF_VERSION.fullmatch(name) and name[:_DIGITS] < first]
    before = -math.inf
    for changed, name in checkpoints[:-2]:
        if name[:_DIGITS] < first:
            continue
        if changed < before + apart:
            gone.append(name)
        else:
            before = changed
    table.folder.delete([f"{LOG}/{name}" for name in gone])
    table.refresh()


def _remove(table: DeltaTable, kept: _Retention, unnamed_hours: Mapping[re.Pattern[str], int | None]) -> int:
    """Remove the files whose names have one of the forms, if the table does not need them; returns their number.

    They are not part of the loaded version. One that the log does not contain belongs to a commit that has not been
    made, or was removed so long ago that the log has forgotten it: it is kept for ``unnamed_hours``, None for good.
    """
    used = {file.path for file in table.files} | {file.vector.path for file in table.files if file.vector is not None}
    removed, now, gone = table.removed, time.time(), list[str]()
    replaced = list[tuple[float, int, str]]()
    for name, changed, octets in table.folder.listed(""):
        hours = [limit for form, limit in unnamed_hours.items() if form.fullmatch(name)]
        if name in used or not hours:
            continue
        if name in removed:
            replaced.append((now - removed[name] / 1000, octets, name))
        elif hours[0] is not None and now - changed >= 3600 * hours[0]:
            gone.append(name)
    total = 0
    for seconds, octets, name in sorted(replaced):
        total += octets
        if kept.is_over(seconds, total):
            gone.append(name)
    table.folder.delete(gone)
    return len(gone)
