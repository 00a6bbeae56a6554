"""A connector's events: the snapshot of its mode, then the stream, into any output."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from cdc_core.assemble.context import RunContext, recreate_lost_slot
from cdc_core.assemble.effects import say_effects
from cdc_core.assemble.signal_topic import require_channels
from cdc_core.assemble.signals.envelopes import envelope_signals
from cdc_core.engine import (
    RENEWAL,
    Hooks,
    Seen,
    StreamReport,
    Until,
    WaitingChanges,
    needing_sender,
    note_sender,
    with_new_senders,
)
from cdc_core.errors import OlderTransactionsError, TransientError
from cdc_core.events import (
    EnvelopeContext,
    EnvelopeRun,
    EventOutlet,
    MarkedOutput,
    OnBatch,
    Output,
    Position,
    SharedSegments,
    TableRows,
)
from cdc_core.lsn import Lsn
from cdc_core.postgres import ChunkConnection, Source
from cdc_core.schema import TableSchema
from cdc_core.selection import MessageSelection
from cdc_core.snapshot import Inbox, ModeActions, Notifier, OnProgress, mode_actions

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5


def envelope_context(context: RunContext, outlet: EventOutlet | None) -> EnvelopeContext:
    """What all records of a run have in common. ``outlet``: transforms and formats, None without any."""
    config = context.config
    return EnvelopeContext.of(
        config.schema,
        config.postgres.database_dbname,
        config.envelope,
        skipped=config.selection.skipped_operations,
        binary=config.types.binary_handling_mode,
        outlet=outlet,
    )


class Events:
    """One run of a connector's events into an output that is not opened yet. ``source`` is claimed.

    ``beside_lake``: a run into the lake has the slot, and this one gets its segments (``follow``). ``apart``: snapshot
    and stream are operations of their own, so a slot may be new although it exists.
    """

    def __init__(
        self,
        context: RunContext,
        source: Source,
        records: EnvelopeContext,
        output: Output,
        notifier: Notifier,
        *,
        beside_lake: bool = False,
        apart: bool = False,
    ) -> None:
        config = context.config
        self._context = context
        self._source = source
        self._marked = MarkedOutput(output)
        self._apart = apart
        self._notifier = notifier
        self._mode = mode_actions(config.snapshot)
        self._is_lost = self._mode.position_lost and source.slot().is_lost
        self._rows = TableRows(source.options, records, config.types, config.selection, config.snapshot)
        self._run = EnvelopeRun(source, records, self._rows, config.selection, config.snapshot, notifier, self._marked)
        if beside_lake:
            self._tables = source.tables()
            self._left = self._marked.open()
            return
        self._tables = source.tables()
        require_channels(config)
        say_effects(config, source, writes_events=True)
        recreate_lost_slot(source, self._mode.position_lost)
        added = source.publish(self._tables, always=context.published_always).added
        if added and source.slot().exists and not source.await_older_transactions():
            raise OlderTransactionsError(
                "Tables were added to the publication, and older transactions are still open.",
                "End them (see pg_stat_activity, oldest xact_start first) and run again.",
            )
        self._left = self._marked.open()
        if self._left.makes_slot and self._left.in_snapshot and self._mode.interrupted:
            # The rows that it wrote are removed, or repeated; the new slot exports a snapshot with which they are read.
            source.drop_slot()
        self._found = source.check_slot()

    def tell(self, on_progress: OnProgress | None = None, on_batch: OnBatch | None = None) -> None:
        """Report the rows of snapshots, and what of the stream is durable."""
        self._rows.on_progress = on_progress
        self._marked.report(on_batch, MessageSelection(self._context.config.selection).includes)

    @property
    def seen(self) -> Seen:
        """What of the stream was received; may be asked by any thread."""
        return self._run.seen

    @property
    def waiting(self) -> WaitingChanges | None:
        """What is written and not durable; may be asked by any thread."""
        return self._marked.output.waiting

    @property
    def tables(self) -> list[TableSchema]:
        """The captured tables."""
        return self._tables

    def snapshot(self) -> int:
        """Write the rows that the snapshot mode requires, if any; returns their number. Makes the slot."""
        reads = _reads(self._mode, self._left, self._found.exists, self._is_lost)
        if self._left.is_stored and not self._left.makes_slot and (self._is_lost or not self._found.exists):
            _log.warning(
                "Replication slot %s %s: the changes made since the last run are missing in the records. %s",
                self._context.slot,
                "has lost WAL that it needs" if self._is_lost else "no longer exists",
                "Every row is read again; rows that were deleted meanwhile have no event."
                if reads
                else "No row is read again: snapshot.mode=when_needed reads them.",
            )
        if reads:
            chosen = [table for table in self._tables if self._source.selection.includes_in_snapshot(table.id)]
            written = self._run.snapshot(self._context.in_reading_order(self._source, chosen))
            custom = self._context.config.snapshot.custom
            if custom is not None:
                custom.completed()
            return written
        if not self._found.exists:
            self._source.make_slot()
        return 0

    def stream(self, until: Until, should_stop: Callable[[], bool] | None, inbox: Inbox | None = None) -> StreamReport:
        """Write the stream's records until a bound is reached. ``inbox`` supplies signals of this process."""
        is_new = self._apart and not self._left.lsn
        is_over = should_stop or (lambda: False)
        resumed = [None if is_new else self._found.confirmed_lsn]

        def once(until: Until, hooks: Hooks) -> StreamReport:
            report = self._streamed(until, is_over, resumed[-1])
            resumed.append(self._source.slot().confirmed_lsn)
            return report

        with self._signals(inbox):
            return with_new_senders(once, until, Hooks())

    def _streamed(self, until: Until, is_over: Callable[[], bool], resumed: Lsn | None) -> StreamReport:
        """Stream once; the report says RENEWAL if another walsender is needed."""
        note_sender(
            self._context.renewal_for(self._source),
            self._source,
            self._reached(),
            lambda: self._context.has_all(self._tables),
        )
        needs = needing_sender(self._context.renewal_for(self._source), self._source)
        renews, looked_at = False, float("-inf")

        def ends() -> bool:
            nonlocal renews, looked_at
            if time.monotonic() - looked_at >= _LOOK_SECONDS:
                renews, looked_at = needs(self._reached()), time.monotonic()
            return renews or is_over()

        is_faulty = self._context.renewal_for(self._source) is not None
        report = self._run.stream(self._tables, until, ends if is_faulty else is_over, resumed)
        return replace(report, stopped_by=RENEWAL) if renews and report.stopped_by == "request" else report

    def _reached(self) -> int:
        """Where a stream would begin now: at what is durable here, and confirmed."""
        return max(self._marked.position.lsn, self._source.slot().confirmed_lsn or 0)

    def follow(self, segments: SharedSegments, should_stop: Callable[[], bool], inbox: Inbox) -> None:
        """Write segments of a run into the lake until it stops; ``inbox`` supplies all signals but the source's."""
        if self._left.in_snapshot:
            raise TransientError(
                "The snapshot into Kafka was interrupted, and the rest of its rows must be read first.",
                "Run again: each run takes it at its start.",
            )
        segments.start_after(self._left.lsn)
        with self._signals(inbox, beside_lake=True):
            self._run.follow(segments, Until(), should_stop)

    @contextmanager
    def _signals(self, inbox: Inbox | None, *, beside_lake: bool = False) -> Iterator[None]:
        """Process signals while streaming."""
        config = self._context.config
        with closing(ChunkConnection(config.postgres, config.snapshot.snapshot_lock_timeout_ms)) as chunks:
            self._run.use_signals(
                envelope_signals(
                    self._context,
                    self._source,
                    self._rows,
                    chunks,
                    self._notifier,
                    self._left.progress,
                    inbox,
                    beside_lake=beside_lake,
                )
            )
            yield


def _reads(mode: ModeActions, left: Position, slot_exists: bool, is_lost: bool) -> bool:
    """Whether this start reads rows. ``left`` is the position at the end of the last run."""
    if left.in_snapshot:
        return mode.interrupted
    if is_lost or (not slot_exists and left.lsn and mode.position_lost):
        return True
    return mode.later if slot_exists else mode.first
