"""The queue of tables to be read in chunks, which signals change, and the notifications about them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot.incremental.progress import Collection, Progress
from cdc_core.snapshot.notifications import INCREMENTAL, Notifier, ScanStatus, SnapshotStatus

_log = logging.getLogger(__name__)
_SAY_SECONDS = 10.0


class SnapshotQueue:
    """The requested incremental snapshots. For one thread.

    ``describe`` returns a table as it is in the catalogue now, None if it no longer exists. ``can_cut`` returns whether
    the table has a key, so that it can be read in chunks. ``progress`` is the state from which a next run continues.
    ``stops`` are the tables that signals have stopped, whether queued or not, until their owner clears it.
    """

    def __init__(
        self,
        describe: Callable[[TableId], TableSchema | None],
        can_cut: Callable[[TableSchema, Collection], bool],
        notifier: Notifier,
        progress: Progress,
        remedy: str = "Add a primary key, or name a unique column as surrogate-key in the signal.",
    ) -> None:
        self.describe = describe
        self.progress = progress
        self._can_cut = can_cut
        self._notifier = notifier
        self._remedy = remedy
        self.stops: list[Callable[[TableId], bool]] = []
        self._rows = 0
        self._said = time.monotonic()

    @property
    def is_busy(self) -> bool:
        """Whether a chunk is to be read."""
        return bool(self.progress.queue and not self.progress.paused)

    def request(self, collections: Iterable[Collection]) -> None:
        """Queue tables. A table without a key is refused with a warning in the log."""
        taken = []
        for collection in collections:
            table = self.describe(collection.table)
            if table is None or not self._can_cut(table, collection):
                self.refuse(collection, ScanStatus.UNKNOWN_SCHEMA if table is None else ScanStatus.NO_PRIMARY_KEY)
            else:
                taken.append(collection)
        if taken:
            names = [str(collection.table) for collection in taken]
            _log.info("An incremental snapshot of %s begins.", ", ".join(names))
            self.notify(SnapshotStatus.STARTED, data_collections=",".join(names))
            self.progress = self.progress.with_tables(tuple(taken))

    def stop(self, is_stopped: Callable[[TableId], bool]) -> None:
        """Remove tables from the queue; no further rows of the current one are delivered."""
        self.stops.append(is_stopped)
        before = len(self.progress.queue)
        self.progress = self.progress.without(is_stopped)
        if len(self.progress.queue) != before:
            self.notify(SnapshotStatus.ABORTED)

    def pause(self, paused: bool) -> None:
        """Pause or resume reading of chunks; a chunk that is in progress is still delivered."""
        if paused != self.progress.paused and (self.progress.queue or not paused):
            self.notify(SnapshotStatus.PAUSED if paused else SnapshotStatus.RESUMED)
            self.progress = self.progress.pausing(paused)

    def delivered(self, progress: Progress, table: TableId, rows: int) -> None:
        """Record that rows of the current table were delivered; ``progress`` is the state after them."""
        self.progress = progress
        self._rows += rows
        if time.monotonic() - self._said >= _SAY_SECONDS:
            self._said = time.monotonic()
            _log.info("%s: %s rows read by the incremental snapshot so far.", table, f"{self._rows:,}")
        self.notify(SnapshotStatus.IN_PROGRESS, current_collection_in_progress=table)

    def done(self, table: TableId, status: ScanStatus) -> None:
        """Remove the current table after its end."""
        self.notify(
            SnapshotStatus.TABLE_SCAN_COMPLETED,
            scanned_collection=table,
            total_rows_scanned=self._rows,
            status=status.value,
        )
        if status in (ScanStatus.SUCCEEDED, ScanStatus.EMPTY):
            _log.info("%s: the incremental snapshot is complete, %s rows.", table, f"{self._rows:,}")
        self._rows = 0
        self.progress = self.progress.next_table()

    def refuse(self, collection: Collection, status: ScanStatus) -> None:
        """Report that a table is not read."""
        if status is ScanStatus.NO_PRIMARY_KEY:
            surrogate = f", or no column {collection.surrogate_key}" if collection.surrogate_key else ""
            _log.warning(
                "%s is skipped by the incremental snapshot: it has no key%s. %s",
                *(collection.table, surrogate, self._remedy),
            )
        else:
            _log.warning(
                "%s is skipped by the incremental snapshot: it no longer exists in the source.", collection.table
            )
        self.notify(SnapshotStatus.TABLE_SCAN_COMPLETED, scanned_collection=collection.table, status=status.value)

    def notify(self, status_type: SnapshotStatus, **data: object) -> None:
        """Send a notification about incremental snapshots."""
        self._notifier.notify(INCREMENTAL, status_type, **data)
