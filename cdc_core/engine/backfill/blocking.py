"""Blocking snapshots that signals request: tables are read at one point in time while the stream is not read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from cdc_core import failpoints
from cdc_core.errors import CdcError, TransientError
from cdc_core.schema import TableId
from cdc_core.snapshot import Notifier, ScanStatus, SnapshotReport, SnapshotStatus

_log = logging.getLogger(__name__)

Outcomes = Mapping[TableId, SnapshotReport | CdcError]
ReadTables = Callable[[Mapping[TableId, int]], Outcomes]


class BlockingTarget(Protocol):
    """The operations of the lake that blocking snapshots use."""

    def reserve(self, tables: Sequence[TableId]) -> dict[TableId, int] | None:
        """Reserve numbers for the schema versions that tables get when they are read; None while one is being read."""

    def note_read(self, table: TableId) -> None:
        """Reload the state of a table that was read."""


class BlockingSnapshots:
    """``read`` reads tables into the lake and returns each one's report, or its error.

    Tables missing in its result are retried. ``should_stop``: the run is about to end, so no further snapshot is
    started; the next run takes it.
    """

    def __init__(self, read: ReadTables, notifier: Notifier, should_stop: Callable[[], bool]) -> None:
        self._read = read
        self._notifier = notifier
        self._should_stop = should_stop

    def take(self, tables: Sequence[TableId], lake: BlockingTarget) -> Outcomes | None:
        """Read tables; returns the results of those that are not to be read again, None if nothing was begun."""
        numbers = None if self._should_stop() else lake.reserve(tables)
        if numbers is None:
            return None
        names = ",".join(str(table) for table in tables)
        self._notifier.blocking(SnapshotStatus.STARTED, data_collections=names)
        try:
            taken = self._read(numbers)
        except TransientError as error:
            _log.warning("A blocking snapshot failed and will be retried: %s", error)
            # Some tables may have been committed before.
            for table in tables:
                lake.note_read(table)
            return {}
        except CdcError as error:
            taken = dict.fromkeys(tables, error)
        failpoints.hit(failpoints.AFTER_BLOCKING)
        # Also of tables with an error, which may have been raised after their commit.
        for table in tables:
            lake.note_read(table)
            if table in taken:
                self._notify_of(table, taken[table], names)
        return taken

    def end(self, tables: Sequence[TableId], taken: Outcomes) -> None:
        """Notify of the end, after it is stored that no table is left."""
        done = [outcome for outcome in taken.values() if not isinstance(outcome, CdcError)]
        status = SnapshotStatus.COMPLETED if len(done) == len(taken) else SnapshotStatus.ABORTED
        names, rows = ",".join(str(table) for table in tables), sum(report.rows for report in done)
        self._notifier.blocking(status, data_collections=names, total_rows_scanned=rows)

    def _notify_of(self, table: TableId, outcome: SnapshotReport | CdcError, names: str) -> None:
        if isinstance(outcome, CdcError):
            _log.error("%s was not read by a blocking snapshot: %s", table, outcome)
            status, rows = ScanStatus.SQL_EXCEPTION, 0
        else:
            status, rows = ScanStatus.SUCCEEDED if outcome.rows else ScanStatus.EMPTY, outcome.rows
        self._notifier.blocking(
            SnapshotStatus.TABLE_SCAN_COMPLETED,
            data_collections=names,
            scanned_collection=table,
            total_rows_scanned=rows,
            status=status.value,
        )
