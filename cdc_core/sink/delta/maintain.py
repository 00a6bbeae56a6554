"""OPTIMIZE and VACUUM of one table, for a schedule: concurrently with rounds, which keep the tables small by
themselves.

What the rounds leave is done here: all small files of a table are put together, not only so many that a round can bear,
and files that no commit names (a run was killed before it) are removed. Both yield to any other writer: after a
conflict with their commit the pass is retried on the new version.

Tables that delta-rs can write are optimized by Arrow (``compaction.compact``), the others by Delta on Spark. A table
with deletion vectors, or features unknown to delta-rs, is vacuumed by Spark too: only Spark knows all files that belong
to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cdc_core.errors import TransientError
from cdc_core.sink.delta.compaction import compact, passable, vacuum
from cdc_core.sink.delta.features import WRITABLE, features_on
from cdc_core.sink.delta.shape import file_hours
from cdc_core.sink.delta.table import DeltaTable

_MIN = 2
# Where another writer is at work on the table it is left alone for as long between two passes.
_PAUSE_SECONDS = 2.0
_TRIES = 8


@dataclass(frozen=True, slots=True)
class Retention:
    """``history_minutes``: as ``wal2lake.lake.history.minutes``, 0 for no VACUUM at all. ``unnamed_hours``: as
    ``wal2lake.vacuum.hours``, the age from which files that no commit names are removed.
    """

    history_minutes: int
    unnamed_hours: int


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """What was done to one table. Files and bytes are those of its newest version, before and after.

    ``rewritten`` counts the files that were put together, ``removed`` those that VACUUM removed from storage.
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
    engine: str


def maintain(
    path: str, retention: Retention, spark: Callable[[], Any], storage: Mapping[str, str] | None = None
) -> MaintenanceResult | None:
    """Put the table's small files together and remove what nobody can read any more; None where there is no table.

    Raises TransientError where Spark's OPTIMIZE met another writer again and again.
    """
    table = DeltaTable.open(path, storage)
    if table is None:
        return None
    started = time.monotonic()
    files, octets = _held(table)
    by_spark = bool(features_on(table)) or not table.features <= WRITABLE
    rewritten = _optimize_by_spark(spark, table) if by_spark else _optimize(table)
    removed = 0
    if retention.history_minutes:
        by_arrow = (table, retention.history_minutes, retention.unnamed_hours)
        removed = _vacuum_by_spark(spark, table, retention) if by_spark else vacuum(*by_arrow)
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
        "spark" if by_spark else "arrow",
    )


def _held(table: DeltaTable) -> tuple[int, int]:
    return len(table.files), sum(file.size for file in table.files)


def _optimize(table: DeltaTable) -> int:
    """Passes until no class has two small files; how many files were put together.

    Only files that are there at the start are, and what is made of them: a stream that continues makes new ones faster
    than passes could end. So each pass leaves one file fewer at least.
    """
    rewritten = lost = 0
    files = {file.path for file in table.files}
    while lost < _TRIES and passable(table, _MIN, files):
        before = table.version
        done = compact(table, _MIN, files)
        rewritten += done
        lost += not done
        table.refresh()
        if table.version > before + bool(done):
            time.sleep(_PAUSE_SECONDS)
    return rewritten


def _optimize_by_spark(spark: Callable[[], Any], table: DeltaTable) -> int:
    from cdc_core.sink.delta.spark_merge import compact as compact_by_spark
    from cdc_core.spark.errors import received

    for left in reversed(range(_TRIES)):
        try:
            with received(f"compacting files of {table.path}"):
                return compact_by_spark(spark(), table.path)
        except TransientError:
            # A round's merge was committed first.
            if not left:
                raise
            time.sleep(_PAUSE_SECONDS)
    raise AssertionError("unreachable")


def _vacuum_by_spark(spark: Callable[[], Any], table: DeltaTable, retention: Retention) -> int:
    """VACUUM of Delta on Spark keeps to one age for all files, so to the longer one."""
    from cdc_core.sink.delta.spark_merge import vacuum
    from cdc_core.spark.errors import received

    hours = max(file_hours(retention.history_minutes), retention.unnamed_hours)
    with received(f"removing old files of {table.path}"):
        return vacuum(spark(), table.path, hours)
