"""OPTIMIZE and VACUUM of one table, for a schedule: concurrently with rounds, which do a part of this themselves.

All small files of a table are compacted, not only as many as a round has time for, and files that no commit references
(of a run killed before its commit) are removed. On a conflict with any other writer's commit, the pass is retried on
the new version.

A table that another program gave features which wal2lake does not write is left as it is (``features``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.cleaning import vacuum
from cdc_core.lake.maintenance.compaction import compact, passable, renew
from cdc_core.lake.schema.features import is_writable

_MIN = 2
# More than between rounds, which would have to wait.
_PASS_BYTES = 64 << 20
# Pause between two passes if another writer is committing to the table.
_PAUSE_SECONDS = 2.0
_TRIES = 8


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention of files.

    ``history_minutes``: as ``wal2lake.lake.history.minutes``, 0 for no VACUUM. ``unnamed_hours``: as
    ``wal2lake.vacuum.hours``, the age from which files that no commit references are removed.
    """

    history_minutes: int
    unnamed_hours: int


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """The result for one table. Files and bytes are those of its newest version, before and after.

    ``rewritten`` counts the files that were compacted, ``removed`` those that VACUUM removed from storage.
    """

    path: str
    version: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rewritten: int
    removed: int
    seconds: float


def maintain(path: str, retention: Retention, storage: Mapping[str, str] | None = None) -> MaintenanceResult | None:
    """Compact the table's small files and remove files that are no longer needed; None if there is no table."""
    table = DeltaTable.open(path, storage)
    if table is None or not is_writable(table):
        return None
    started = time.monotonic()
    files, octets = _held(table)
    rewritten = _optimize(table)
    removed = vacuum(table, retention.history_minutes, retention.unnamed_hours) if retention.history_minutes else 0
    table.refresh()
    after, octets_after = _held(table)
    return MaintenanceResult(
        path,
        table.version,
        files,
        after,
        octets,
        octets_after,
        rewritten,
        removed,
        time.monotonic() - started,
    )


def _held(table: DeltaTable) -> tuple[int, int]:
    return len(table.files), sum(file.size for file in table.files)


def _optimize(table: DeltaTable) -> int:
    """Compact until no class has two small files, and none has many deleted rows; returns the number rewritten.

    Only files that exist at the start, and the files made of them, are compacted: a running stream adds new ones faster
    than passes could end. So each pass reduces their number by at least one.
    """
    rewritten = lost = 0
    files = {file.path for file in table.files}
    while lost < _TRIES and passable(table, _MIN, files):
        before = table.version
        done = compact(table, _MIN, files, _PASS_BYTES)
        rewritten += done
        lost += not done
        table.refresh()
        if table.version > before + bool(done):
            time.sleep(_PAUSE_SECONDS)
    while renew(table, files, _PASS_BYTES):
        rewritten += 1
    return rewritten
