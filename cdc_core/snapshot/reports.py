"""What snapshots tell whoever runs them."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """One table's snapshot, as committed to the lake. ``lsn`` is the position it shows the source at.

    ``rows_kept`` of its ``rows`` had been read by an earlier attempt that was interrupted; where there are any,
    ``rows`` may count some that no longer exist at ``lsn`` and leave with the first merge.
    """

    table: TableId
    rows: int
    lsn: Lsn
    seconds: float
    lake_version: int
    skipped: bool = False
    rows_kept: int = 0


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """How far a running snapshot is. ``rows_estimated`` is the planner's guess, None where it has none.

    ``rows`` are those read so far, in ``ranges_done`` of ``ranges_total`` ranges, 0 where that is not known. ``done``:
    they are in the lake, and ``report`` says how.
    """

    table: TableId
    rows: int
    rows_estimated: int | None
    done: bool
    ranges_done: int = 0
    ranges_total: int = 1
    report: SnapshotReport | None = None
