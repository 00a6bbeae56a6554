"""Snapshots requested by signals while streaming into the lake.

Incremental snapshots are read in chunks concurrently with the stream, blocking snapshots while streaming is paused.

    signal ─▶ stored queue ─▶ group of chunks (a thread) ─▶ lake table merged past the chunks' LSN ─▶ chunks are written

While one group waits and is written, the next is read. Everything here runs between two rounds, in their thread.

Crash safety. The stored state is the queue, the key up to which all rows have been written, and the position of the
last signal. It is stored before the slot is confirmed past a signal (otherwise the slot sends it again), so that no
signal is lost, and none is processed twice because its position is compared. It is also stored before a group is
written, with the group's last key. After a kill the next run reads the range between the two keys again, with the same
ordinal: writing rows again that are in the lake already does not change them, and rows that are in the changelog
already (``wal2lake.changelog.reads``) are not appended twice. The request for a blocking snapshot is stored until the
snapshot is in the lake; it may be taken twice, and replaces its tables either way. What follows from each event is a
pure function (``transitions``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Protocol

from cdc_core import failpoints
from cdc_core.engine.backfill.blocking import BlockingSnapshots
from cdc_core.engine.backfill.task import ChunkOrder, ChunkOutcome
from cdc_core.engine.backfill.transitions import (
    MAX_PASSES,
    MAX_TRIES,
    Action,
    AllEnded,
    Backfill,
    Delivered,
    Discard,
    Event,
    Followed,
    GivenUp,
    GroupRead,
    HeldUp,
    Incomplete,
    Postponed,
    ReadAgain,
    ReadBegun,
    ReadFailed,
    Requested,
    Store,
    TableEnded,
    Wait,
    WriteBegun,
    WriteFailed,
    Written,
    step,
)
from cdc_core.engine.slice.order import Merge
from cdc_core.errors import (
    CdcError,
    LimitExceededError,
    NotJudgedError,
    OlderTransactionsError,
    RereadNeededError,
    TransientError,
)
from cdc_core.lake.stores.progress_log import ProgressLog
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.snapshot.incremental.groups import ChunkGroup, GroupReader
from cdc_core.snapshot.incremental.lake_progress import LakeProgress
from cdc_core.snapshot.incremental.queue import SnapshotQueue
from cdc_core.snapshot.notifications import ScanStatus, SnapshotStatus
from cdc_core.snapshot.signals.processor import SignalProcessor
from cdc_core.snapshot.signals.rows import SignalRow

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
_BUSY_SECONDS = 2.0
# While the stream delivers many changes, writing chunks takes at most 1/_SHARE of the time, but is delayed at most
# _MAX_WAIT_SECONDS.
_SHARE, _MAX_WAIT_SECONDS = 15, 20.0


class Lake(Protocol):
    """The operations of the lake that snapshots use (``cdc_core.engine.round.backfill_target.BackfillTarget``)."""

    def is_current(self, table: TableSchema) -> bool:
        """Whether the lake table has the schema version of this description of its source and is merged by rounds."""

    def order_for_chunks(self, table: TableId, reached: int, passed: int) -> Merge | None:
        """Return the order once the lake table is merged up to ``reached``; None before that."""

    def apply_chunks(self, order: ChunkOrder) -> ChunkOutcome:
        """Write rows to the lake table."""

    def reserve(self, tables: Sequence[TableId]) -> dict[TableId, int] | None:
        """Reserve numbers for the schema versions that tables get when they are read; None while one is being read."""

    def note_read(self, table: TableId) -> None:
        """Reload the state of a table that was read."""


class LakeSnapshots:
    """The snapshots of one run. ``keeps_events``: the rows of chunks are also appended to the changelog.

    ``state`` is what the last run stored.
    """

    def __init__(
        self,
        queue: SnapshotQueue,
        processor: SignalProcessor,
        reader: GroupReader,
        log: ProgressLog,
        state: LakeProgress,
        blocking: BlockingSnapshots,
        *,
        keeps_events: bool,
    ) -> None:
        self._queue = queue
        self._processor = processor
        self._reader = reader
        self._log = log
        self._stored = state
        self._state = Backfill.of(state)
        self._blocking = blocking
        self._keeps_events = keeps_events
        self._reading: Future[ChunkGroup] | None = None
        self._pace = _Pace()

    @property
    def needed(self) -> dict[TableId, int]:
        """The LSN after which changes of the current table are still read, 0 for all of them."""
        return self._state.needed

    @property
    def is_busy(self) -> bool:
        """Whether rows are to be read or written, unless the table is paused, being re-read, or cannot be read yet."""
        return self._state.is_busy

    def note(self, signals: Sequence[SignalRow], rows: int) -> None:
        """Process the signals of a batch before its position is confirmed; ``rows`` is its number of other rows."""
        if rows:
            self._pace.note_changes()
        last = self._state.durable.signal
        for row in signals:
            place = (row.commit_lsn, row.tx_index)
            if place > last:
                self._processor.take(row, str(Lsn(row.commit_lsn)))
                last = place
        if last != self._state.durable.signal:
            self._step(Requested(self._queue.progress, last))
            failpoints.hit(failpoints.AFTER_SIGNAL)

    def between_rounds(self, lake: Lake, passed: int) -> None:
        """Do what is due between two rounds; ``passed`` is the LSN up to which everything received is processed."""
        if self._processor.ask(str(Lsn(passed))):
            self._step(Requested(self._queue.progress))
        self._processor.done()
        if self._queue.progress.blocking and self._pace.may_try:
            self._read_at_once(lake)
        self._collect()
        if self._state.waiting is not None:
            self._write(lake, self._state.waiting, passed)
        self._read_on()

    def close(self) -> None:
        """Stop reading and store the progress."""
        self._reader.close()
        self._discard(Discard(self._state.waiting, reading=True))
        try:
            self._store(self._state.durable)
        except CdcError as error:
            _log.warning("The progress of the incremental snapshot could not be stored: %s", error)

    def _step(self, event: Event) -> None:
        self._state, actions = step(self._state, event)
        for action in actions:
            self._perform(action)
        self._queue.progress = self._state.progress

    def _perform(self, action: Action) -> None:
        match action:
            case Store(durable):
                self._store(durable)
            case Discard():
                self._discard(action)
            case Wait():
                self._pace.wait()
            case Delivered(table, rows, progress):
                self._queue.delivered(progress, table, rows)
            case TableEnded(status):
                self._queue.done(status)
            case AllEnded():
                self._queue.notify(SnapshotStatus.COMPLETED)
            case HeldUp() | GivenUp() | ReadAgain() | Incomplete():
                _say(action)

    def _store(self, durable: LakeProgress) -> None:
        if durable != self._stored:
            self._log.write(durable.to_json())
            self._stored = durable

    def _discard(self, action: Discard) -> None:
        if action.reading and self._reading is not None:
            self._reader.enough()
            self._reading.add_done_callback(_discard_read)
            self._reading = None
        if action.group is not None:
            action.group.discard()

    def _collect(self) -> None:
        """Take over the group that has been read."""
        if self._reading is None or not self._reading.done() or self._state.waiting is not None:
            return
        reading, self._reading = self._reading, None
        try:
            group = reading.result()
        except OlderTransactionsError as error:
            if not self._state.is_held_up:
                _log.warning("An incremental snapshot waits: %s", error)
            self._step(Postponed())
        except TransientError as error:
            _log.warning("Rows of an incremental snapshot will be re-read: %s", error)
            self._step(ReadFailed(is_temporary=True))
        except CdcError as error:
            _log.warning("%s is skipped by the incremental snapshot: %s", self._state.table, error)
            self._step(ReadFailed(is_temporary=False))
        except Exception:
            # An internal error while one table is read affects only that table.
            _log.exception("Reading rows of an incremental snapshot failed unexpectedly; its table is skipped.")
            self._step(ReadFailed(is_temporary=False))
        else:
            table, ended = group.collection.table, group.ended
            if not group.is_altered and ended not in (None, ScanStatus.SUCCEEDED, ScanStatus.EMPTY):
                _log.warning("%s is skipped by the incremental snapshot: %s.", table, ended.value)
            self._step(GroupRead(group))

    def _read_on(self) -> None:
        """Start reading the next group while one waits; end the current read if no group waits."""
        self._reader.slow(self._pace.is_busy)
        if self._reading is not None:
            if self._state.waiting is None and self._pace.is_turn:
                self._reader.enough()
            return
        after = self._state.next_read
        if after is not None and self._pace.may_try:
            self._reading = self._reader.start(after)
            self._step(ReadBegun())

    def _write(self, lake: Lake, group: ChunkGroup, passed: int) -> None:
        if self._pace.is_busy and not self._pace.is_turn:
            return
        assert group.table is not None
        # If not, it is paused or being re-read, or the stream has not reached its last schema change.
        is_current = lake.is_current(group.table)
        self._step(Followed(is_current))
        order = lake.order_for_chunks(group.table.id, group.reached, passed) if is_current else None
        if order is None:
            return
        began = time.monotonic()
        self._step(WriteBegun())
        failpoints.hit(failpoints.BEFORE_CHUNK_APPLY)
        durable = self._state.durable
        reads = durable.ordinal if self._keeps_events else None
        outcome = lake.apply_chunks(ChunkOrder(order, group.chunks, durable.scanned, group.reached, reads))
        self._pace.note_written(began)
        if outcome.error is not None:
            table, error = group.table.id, outcome.error
            if isinstance(error, (NotJudgedError, LimitExceededError)):
                _log.error("%s is skipped by the incremental snapshot: %s", table, error)
                self._step(WriteFailed(from_start=False, is_final=True))
                return
            _log.warning("Rows of %s could not be written to the lake and will be re-read: %s", table, outcome.error)
            # Changes since the table was started can no longer be read: its snapshot starts again.
            self._step(WriteFailed(from_start=isinstance(outcome.error, RereadNeededError)))
            return
        failpoints.hit(failpoints.AFTER_CHUNK_APPLY)
        self._step(Written(order.to_lsn, outcome.rest))

    def _read_at_once(self, lake: Lake) -> None:
        """Read the tables of blocking snapshots while the caller does not read the stream."""
        wanted = [one.table for one in self._queue.progress.blocking]
        taken = self._blocking.take(wanted, lake)
        if taken is None:
            return
        left = tuple(one for one in self._queue.progress.blocking if one.table not in taken)
        self._step(Requested(replace(self._queue.progress, blocking=left)))
        if left:
            self._pace.wait()
        else:
            self._blocking.end(wanted, taken)


class _Pace:
    """When the next step is due, so that the stream has most of the time while it delivers many changes."""

    def __init__(self) -> None:
        self._retry_at = self._turn_at = self._busy_until = float("-inf")

    @property
    def is_busy(self) -> bool:
        """Whether the stream has just delivered changes."""
        return time.monotonic() < self._busy_until

    @property
    def is_turn(self) -> bool:
        """Whether a group may be written while the stream is busy."""
        return time.monotonic() >= self._turn_at

    @property
    def may_try(self) -> bool:
        """Whether something may be read."""
        return time.monotonic() >= self._retry_at

    def wait(self) -> None:
        """Read nothing for a moment."""
        self._retry_at = time.monotonic() + _RETRY_SECONDS

    def note_changes(self) -> None:
        """The stream has delivered changes."""
        self._busy_until = time.monotonic() + _BUSY_SECONDS

    def note_written(self, began: float) -> None:
        """A group was written, or not, since ``began``."""
        ended = time.monotonic()
        self._turn_at = ended + min((_SHARE - 1) * (ended - began), _MAX_WAIT_SECONDS)


def _say(action: HeldUp | GivenUp | ReadAgain | Incomplete) -> None:
    table = action.table
    match action:
        case HeldUp():
            _log.info("Rows of %s wait until the lake table has the current columns of the source.", table)
        case GivenUp():
            _log.error(
                "%s is skipped by the incremental snapshot: %d attempts to write its rows to the lake failed. "
                "See the log for the cause, and request the snapshot again.",
                table,
                MAX_TRIES,
            )
        case ReadAgain():
            _log.info("%s is re-read in chunks: the keys of too many rows changed during the snapshot.", table)
        case Incomplete():
            _log.warning(
                "%s: keys of rows changed during %d passes of the snapshot, and TOASTed values of these rows "
                "may be missing. Take a blocking snapshot of it.",
                table,
                MAX_PASSES + 1,
            )


def _discard_read(reading: Future[ChunkGroup]) -> None:
    if not reading.cancelled() and reading.exception() is None:
        reading.result().discard()
