"""Incremental snapshots while streaming: the queue of tables, and one chunk at a time that is inserted into the stream.

    request ─▶ queue ─▶ mark, chunk, mark ─▶ ChunkWindow ─▶ the second mark is received in the stream ─▶ remaining rows

The marks are rows of the signal table, written by wal2lake and received in the stream. With ``read.only`` nothing is
written: the chunk is inserted where the stream has passed everything that the chunk shows, determined by the end of WAL
after the chunk was read. In both cases every change that the chunk's snapshot does not show and that precedes this
position removes its row from the chunk (window), so that no row is overwritten by an older state.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from cdc_core import clock
from cdc_core.errors import CdcError, NotUtf8Error, SourceError, TransientError
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot.incremental.progress import Collection, Progress
from cdc_core.snapshot.incremental.queue import SnapshotQueue
from cdc_core.snapshot.incremental.reader import ChunkReader, Streamed
from cdc_core.snapshot.incremental.watermarks import WINDOW_CLOSE, WINDOW_OPEN
from cdc_core.snapshot.incremental.window import ChunkWindow, is_unaltered
from cdc_core.snapshot.notifications import Notifier, ScanStatus, SnapshotStatus
from cdc_core.snapshot.options import WatermarkingStrategy

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
# While the stream delivers many changes, chunks take at most 1/_SHARE of the time.
_SHARE = 6
# Maximum number of tables examined for one chunk, including tables without rows and tables altered meanwhile.
_TRIES = 200


@dataclass(frozen=True, slots=True)
class Watermarks:
    """How a chunk is marked in the stream. ``table`` None: nothing is written (``read.only``)."""

    table: TableId | None
    id_column: str = ""
    strategy: WatermarkingStrategy = WatermarkingStrategy.INSERT_INSERT


class IncrementalSnapshots(SnapshotQueue):
    """The incremental snapshots of one run whose rows are inserted into the stream.

    ``window`` is the chunk that waits for its position; a next run reads it again.
    """

    def __init__(
        self,
        reader: ChunkReader,
        marks: Watermarks,
        describe: Callable[[TableId], TableSchema | None],
        notifier: Notifier,
        progress: Progress,
    ) -> None:
        super().__init__(describe, lambda table, collection: bool(reader.key_of(table, collection)), notifier, progress)
        self._reader = reader
        self.marks = marks
        self._retry_at = 0.0
        self._turn_at = 0.0
        self._known: TableSchema | None = None
        self.streamed = Streamed()
        self.window: ChunkWindow | None = None
        self.reached = Lsn(0)

    @property
    def is_busy(self) -> bool:
        """Whether a chunk waits or is to be read."""
        return self.window is not None or super().is_busy

    def stop(self, is_stopped: Callable[[TableId], bool]) -> None:
        """Remove tables from the queue; no further rows of the current one are delivered."""
        current = self.progress.current
        super().stop(is_stopped)
        if current is not None and self.progress.current != current:
            self.window = None

    def next_chunk(self, is_silent: bool = True) -> None:
        """Read a chunk and mark its position, if one is due. Transient errors are retried later.

        ``is_silent``: no change was received just now; otherwise most of the time is left to the stream.
        """
        began = time.monotonic()
        if self.window is not None or not self.is_busy or began < self._retry_at:
            return
        if is_silent or began >= self._turn_at:
            self._next_chunk()
            ended = time.monotonic()
            self._turn_at = ended + (_SHARE - 1) * (ended - began)

    def _next_chunk(self) -> None:
        window_id, opened_at = str(uuid.uuid4()), _instant()
        try:
            marks = self.marks.table
            if marks is not None:
                self._mark(marks, WINDOW_OPEN, f"{window_id}-open", {"openWindowTimestamp": opened_at})
            window = self._chunk()
            if marks is not None:
                self._close(marks, window_id, opened_at)
            self.reached = self._reader.connection.wal_end()
        except TransientError as error:
            _log.warning("A chunk of an incremental snapshot will be re-read: %s", error)
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            return
        except SourceError as error:
            # The signal table cannot be written to: chunks of this and all other tables would never be delivered.
            _log.error("The incremental snapshot is aborted: %s", error)
            self.stop(lambda table: True)
            return
        if window is None:
            self.notify(SnapshotStatus.COMPLETED)
        else:
            window.id = window_id
            self.window = window

    def lose_marks(self) -> None:
        """Abort because the stream has passed the window's marks without containing them."""
        _log.error(
            "The incremental snapshot is aborted: rows written to %s are not in the stream. Add the table to "
            "the publication.",
            self.marks.table,
        )
        self.window = None
        self.stop(lambda table: True)

    def insert(self) -> ChunkWindow | None:
        """Take the window whose position is reached; None without one, or if it is stale: its chunk is read again."""
        window, self.window = self.window, None
        if window is None or window.is_stale:
            return None
        if window.last_key is not None:
            self.delivered(self.progress.behind(window.last_key), window.table.id, int(window.keep.sum()))
        return window

    def _chunk(self) -> ChunkWindow | None:
        """Return the next rows of the queue's tables; None if there are none. Raises TransientError."""
        for _ in range(_TRIES):
            collection = self.progress.current
            if collection is None:
                return None
            known = self._known
            # As described after the last chunk: a later alteration is detected after this one.
            table = known if known is not None and known.id == collection.table else self.describe(collection.table)
            key = () if table is None else tuple(column.name for column in self._reader.key_of(table, collection))
            if table is None or not key:
                self.done(collection.table, ScanStatus.UNKNOWN_SCHEMA if table is None else ScanStatus.NO_PRIMARY_KEY)
                continue
            error, window, progress = self._read(table, collection, key)
            self._known = self.describe(collection.table)
            if self._known is None or not is_unaltered(table, self._known):
                # The rows, or the error, may be another table's: the table is read with its current description.
                continue
            if error is not None:
                _log.warning("%s is skipped by the incremental snapshot: %s", collection.table, error)
                self.done(collection.table, ScanStatus.SQL_EXCEPTION)
            elif progress is None:
                self.done(collection.table, ScanStatus.EMPTY)
            else:
                self.progress = progress
                if window is not None and len(window.rows):
                    return window
                self.done(collection.table, ScanStatus.SUCCEEDED)
        raise TransientError(
            f"In {_TRIES} consecutive attempts a table was altered while it was read, or had no rows.",
            "The snapshot continues automatically.",
        )

    def _read(
        self, table: TableSchema, collection: Collection, key: tuple[str, ...]
    ) -> tuple[CdcError | None, ChunkWindow | None, Progress | None]:
        """Return the error of the table's rows, or the next ones and their progress; no progress means no rows."""
        progress = self.progress
        try:
            if progress.key != key:
                largest = self._reader.largest_key(table, collection)
                if largest is None:
                    return None, None, None
                progress = progress.restarted().begun(key, largest)
            return None, self._reader.read(table, collection, progress, self.streamed.hidden), progress
        except (SourceError, NotUtf8Error) as error:
            return error, None, None

    def _mark(self, marks: TableId, kind: str, signal_id: str, data: dict[str, str]) -> None:
        self._reader.connection.insert(marks, signal_id, kind, json.dumps(data))

    def _close(self, marks: TableId, window_id: str, opened_at: str) -> None:
        if self.marks.strategy is WatermarkingStrategy.INSERT_DELETE:
            self._reader.connection.delete(marks, self.marks.id_column, f"{window_id}-open")
            return
        times = {"openWindowTimestamp": opened_at, "closeWindowTimestamp": _instant()}
        self._mark(marks, WINDOW_CLOSE, f"{window_id}-close", times)


def _instant() -> str:
    """Return the current time in Java's format, to the nanosecond: ``2026-11-21T07:32:32.618752105Z``."""
    seconds, below = divmod(clock.now_ns(), 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{below:09d}Z"
