"""Decides how a slice is applied to its lake table; this is the only place that does.

    ADD    new files are added: inserts; in parts, also the entire content after a truncate
    FILES  rows of the table's files are changed in the task: a file is written again, or rows are marked as deleted in
           it and their new states added. ``lake/apply/ways`` chooses by the size of the files that have a changed row
    SPARK  the slice is staged for Spark's MERGE (``lake/spark/merge``, docs/decisions/0004)

A task can write every table; whether Spark can is stated by ``lake/schema/features``. Where FILES and SPARK are
possible, the engine of the table's order decides. For ``auto`` Spark is for tables whose rows may not be marked, if
more bytes would have to be read and written again than are allowed.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from cdc_core.lake.apply.changes import Changes, bytes_to_scan
from cdc_core.lake.apply.strategy import MergeStrategy
from cdc_core.lake.delete_columns import mode_of
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.options import MergeEngine
from cdc_core.lake.rows.survey import Survey
from cdc_core.lake.schema.features import can_be_written_by_spark

WIDE_ROW_BYTES = 1 << 20
"""Rows of this size on average are not given to Spark in parts: Java needs several copies of them in memory."""


class ApplyMethod(enum.Enum):
    """How a slice becomes a commit of its lake table."""

    ADD = "add"
    FILES = "files"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be done with a lake table: ``marks_rows``, whether its rows may be marked in deletion vectors."""

    engine: MergeEngine
    rewrite_max_bytes: int
    marks_rows: bool


def method_for(lake: DeltaTable, changes: Changes, limits: Limits) -> ApplyMethod:
    """Return how prepared changes are applied; the first row that fits.

    the slice        by Spark, too    engine     marks rows   bytes to scan   method
    only inserts                      any                                     ADD
    anything else    no               any                                     FILES
    anything else    yes              spark                                   SPARK
    anything else    yes              auto       no           too many        SPARK
    anything else    yes              any                                     FILES
    """
    if changes.strategy is MergeStrategy.APPEND:
        return ApplyMethod.ADD
    if not can_be_written_by_spark(lake):
        return ApplyMethod.FILES
    if limits.engine is MergeEngine.SPARK:
        return ApplyMethod.SPARK
    may_be_too_large = limits.engine is MergeEngine.AUTO and not limits.marks_rows
    is_too_large = may_be_too_large and bytes_to_scan(lake, changes) > limits.rewrite_max_bytes
    return ApplyMethod.SPARK if is_too_large else ApplyMethod.FILES


def method_for_parts(
    lake: DeltaTable, whole: Survey, limits: Limits, *, has_key: bool, overlaps: bool, row_bytes: int
) -> ApplyMethod:
    """Return how a slice of which no part is visible by itself is applied; ``whole`` summarizes all its parts.

    ``overlaps``: the slice may contain rows of the snapshot in force. ``row_bytes`` is the average size of its rows.
    The files that all parts may have to rewrite are taken to be too large.
    """
    is_added = whole.only_inserts and not (has_key and overlaps)
    is_replaced = whole.truncated_at is not None and mode_of(lake.schema.names) is DeleteMode.HARD
    if takes_files(lake) and (is_added or is_replaced):
        return ApplyMethod.ADD
    may_be_too_large = limits.engine is MergeEngine.AUTO and not limits.marks_rows
    is_for_spark = (limits.engine is MergeEngine.SPARK or may_be_too_large) and can_be_written_by_spark(lake)
    return ApplyMethod.SPARK if is_for_spark and row_bytes < WIDE_ROW_BYTES else ApplyMethod.FILES


def takes_files(lake: DeltaTable) -> bool:
    """Whether files with the rows resulting from inserts can simply be added to the table."""
    return mode_of(lake.schema.names) is not DeleteMode.SOFT
