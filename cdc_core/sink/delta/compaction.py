"""Automatic maintenance: the number of files and log entries of a table is bounded.

Small files are put together by size: some sixteen of one class become one of the next. So each row is rewritten as
often as there are classes, however long the table lives, and a pass is bounded in bytes. A file past the last class
stays as it is. Each table has rounds of its own for this, lest hundreds that are changed by the same rounds all do it
in one. The commit says that no data changed; a crash before it leaves unnamed files that VACUUM takes.

Log entries go when they are older than ``wal2lake.lake.history.minutes``, replaced files when they are that old and an
hour at least; tables are made with these times as their own retention, so that their checkpoints forget them too. A log
is listed at every commit, so a long one would make each round dearer than the one before.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa
from deltalake.exceptions import DeltaError

from cdc_core import failpoints
from cdc_core.errors import CommitConflictError
from cdc_core.sink.delta.features import features_on
from cdc_core.sink.delta.shape import file_hours, phase
from cdc_core.sink.delta.table import DataFile, DeltaTable

_SMALLEST = 64 << 10
_FACTOR = 8
_CLASSES = 3
_FILES, _MIN, _MAX = 16, 8, 20
_PASS_BYTES = 32 << 20
_CLEAN_EVERY = 100

_log = logging.getLogger(__name__)


def compact(table: DeltaTable, enough: int = _FILES, among: set[str] | None = None) -> int:
    """Put ``enough`` small files of a class together, or more; how many were. One pass, of 32 MiB of files at most.

    ``among`` are the paths of the files to choose from, where not all are; the file that is made is added to them.
    Gives way to any other writer: where their commit was made first nothing is changed. A table that Spark
    writes is put together by Spark (``spark_merge.compact``).
    """
    if not passable(table, enough, among):
        return 0
    chosen = _chosen(table.files, enough, among)
    rows = pa.concat_tables([table.read(file) for file in chosen])
    merged = table.write(rows)
    failpoints.hit(failpoints.DURING_COMPACTION)
    try:
        table.commit([merged], chosen, metadata={"upkeep": "compaction"}, data_change=False)
    except CommitConflictError:
        table.refresh()
        return 0
    if among is not None:
        among.add(merged.path)
    return len(chosen)


def passable(table: DeltaTable, enough: int = _FILES, among: set[str] | None = None) -> bool:
    """Whether a pass of ``compact`` has anything to do."""
    is_ours = not table.has_deletion_vectors and not features_on(table)
    return is_ours and len(_chosen(table.files, enough, among)) >= 2


def _chosen(files: Sequence[DataFile], enough: int, among: set[str] | None) -> list[DataFile]:
    """The files of one pass. Versions that have ended stay apart from rows that can change."""
    if among is not None:
        files = [file for file in files if file.path in among]
    found = choose([file for file in files if not file.is_history], enough)
    return found or choose([file for file in files if file.is_history], enough)


def choose(files: Sequence[DataFile], enough: int = _FILES) -> list[DataFile]:
    """The files that one pass puts together: those of the lowest class that has ``enough``, in the log's order."""
    by_class: dict[int, list[DataFile]] = {}
    for file in files:
        by_class.setdefault(_class(file.size), []).append(file)
    for number in range(_CLASSES):
        found = by_class.get(number, [])
        if len(found) >= enough:
            chosen, octets = [], 0
            for file in found:
                octets += file.size
                if octets > _PASS_BYTES:
                    break
                chosen.append(file)
            return chosen
    return []


def tidy(table: DeltaTable, since: int, history_minutes: int) -> None:
    """Compact, and clean once in some hundreds of versions. ``since`` is the version before the round's own commits."""
    compact(table, _MIN if is_its_turn(table, since, _FILES) else _MAX)
    if history_minutes and is_its_turn(table, since, _CLEAN_EVERY):
        clean(table, history_minutes)


def is_its_turn(table: DeltaTable, since: int, period: int) -> bool:
    """Whether the table passed a version of its own, one in ``period``, since the version ``since``."""
    own = phase(table.path, period)
    return (table.version - own) // period != (since - own) // period


def clean(table: DeltaTable, history_minutes: int) -> None:
    """Remove log entries older than ``history_minutes``, and data files that were replaced as long ago, or an hour.

    Files are found by the log's own marks of removal: what a commit has not named yet is left alone.
    """
    raw = table.raw()
    try:
        raw.vacuum(file_hours(history_minutes), dry_run=False, enforce_retention_duration=False)
        raw.cleanup_metadata()
    except DeltaError as error:
        # Another writer's commit, or a reader's lock: the next time is soon enough.
        _log.warning(
            "Old files of %s were not removed; the next attempt follows (%s).", table.path, type(error).__name__
        )
    table.refresh()


def vacuum(table: DeltaTable, history_minutes: int, unnamed_hours: int) -> int:
    """``clean``, and remove files that no commit names once they are ``unnamed_hours`` old; how many files went.

    Not for tables with deletion vectors, whose files delta-rs does not all know.
    """
    raw, hours = table.raw(), file_hours(history_minutes)
    try:
        gone = set(raw.vacuum(hours, dry_run=False, enforce_retention_duration=False))
        oldest = max(hours, unnamed_hours)
        gone |= set(raw.vacuum(oldest, dry_run=False, enforce_retention_duration=False, full=True))
        raw.create_checkpoint()
        raw.cleanup_metadata()
    except DeltaError as error:
        # Another writer's commit; the next time is soon enough.
        _log.warning(
            "Old files of %s were not removed; the next attempt follows (%s).", table.path, type(error).__name__
        )
        gone = set()
    table.refresh()
    return len(gone)


def _class(size: int) -> int:
    number, limit = 0, _SMALLEST
    while size >= limit and number < _CLASSES:
        number, limit = number + 1, limit * _FACTOR
    return number
