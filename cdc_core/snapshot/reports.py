"""Reports of snapshots for their callers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cdc_core.lsn import Lsn
from cdc_core.schema import TableId


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """One table's snapshot, as committed to the lake. ``lsn`` is the position at which it shows the source.

    ``rows_kept`` of its ``rows`` were read by an earlier, interrupted attempt; if there are any, ``rows`` may include
    rows that no longer exist at ``lsn`` and are deleted with the first merge. ``refused`` rows were kept out of the
    lake: they are in quarantine.
    """

    table: TableId
    rows: int
    lsn: Lsn
    seconds: float
    lake_version: int
    skipped: bool = False
    rows_kept: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """Progress of a running snapshot. ``rows_estimated`` is the planner's estimate, None if it has none.

    ``rows`` are those read so far, in ``ranges_done`` of ``ranges_total`` ranges, 0 if unknown. ``done``: they are in
    the lake, as described by ``report``.
    """

    table: TableId
    rows: int
    rows_estimated: int | None
    done: bool
    ranges_done: int = 0
    ranges_total: int = 1
    report: SnapshotReport | None = None


OnProgress = Callable[[SnapshotProgress], None]
