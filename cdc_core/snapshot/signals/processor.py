"""Processes signals: tables are queued, removed, paused; messages logged; the user's own classes called.

A signal that cannot be parsed is logged and left out. The processor does not depend on the destination of the rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from cdc_core.schema import TableId
from cdc_core.selection import table_matcher
from cdc_core.snapshot.incremental.progress import Collection
from cdc_core.snapshot.incremental.queue import SnapshotQueue
from cdc_core.snapshot.signals.actions import SignalAction
from cdc_core.snapshot.signals.channels import Channel
from cdc_core.snapshot.signals.parse import (
    WATERMARKS,
    ExecuteSnapshot,
    Log,
    MalformedSignalError,
    PauseSnapshot,
    ResumeSnapshot,
    Signal,
    SnapshotKind,
    StopSnapshot,
    action_of,
    read_signal,
)
from cdc_core.snapshot.signals.rows import SignalRow

_log = logging.getLogger(__name__)


class SignalProcessor:
    """Processes signals, by changing ``queue``. For one thread.

    ``table`` is the signal table, None if there is none; ``listens``: signals are taken from it. ``captured`` lists the
    tables that may be read. ``refusal`` is the reason why incremental snapshots are not possible, empty if they are.
    ``conditions_block``: whether a blocking snapshot of a part of a table is possible; otherwise such a part is read in
    chunks.
    """

    def __init__(
        self,
        queue: SnapshotQueue,
        table: TableId | None,
        listens: bool,
        channels: Sequence[Channel],
        actions: Mapping[str, SignalAction],
        captured: Callable[[], list[TableId]],
        refusal: str = "",
        *,
        conditions_block: bool = True,
    ) -> None:
        self._queue = queue
        self.table = table
        self._listens = listens
        self._channels = channels
        self._actions = actions
        self._captured = captured
        self._refusal = refusal
        self._conditions_block = conditions_block

    def take(self, row: SignalRow, position: str) -> bool:
        """Process a row of the signal table; returns whether it is a signal. ``position`` replaces ``{}`` in texts."""
        if not self._listens or row.is_deleted or row.type in WATERMARKS:
            return False
        try:
            self.process(read_signal(row.id, row.type, row.data), position)
        except MalformedSignalError as error:
            _log.warning("A row of the signal table is skipped: %s.", error)
        return True

    def ask(self, position: str) -> bool:
        """Process signals of the other channels; returns whether there were any."""
        signals = [signal for channel in self._channels for signal in channel.take()]
        for signal in signals:
            self.process(signal, position)
        return bool(signals)

    def done(self) -> None:
        """Inform the channels that their signals have been processed and stored."""
        for channel in self._channels:
            channel.done()

    def process(self, signal: Signal, position: str) -> None:
        """Process a signal."""
        try:
            action = action_of(signal)
        except MalformedSignalError as error:
            _log.warning("A signal of type %s is skipped: %s.", signal.type, error)
            return
        match action:
            case ExecuteSnapshot():
                self._execute(action)
            case StopSnapshot():
                named = [table_matcher(entry) for entry in action.collections]
                self._queue.stop(lambda table: not named or any(names(table) for names in named))
            case PauseSnapshot() | ResumeSnapshot():
                self._queue.pause(isinstance(action, PauseSnapshot))
            case Log():
                _log.info("%s", action.message.replace("{}", position))
            case None:
                self._act(signal)

    def _execute(self, action: ExecuteSnapshot) -> None:
        named = [table_matcher(entry) for entry in action.collections]
        captured = [table for table in self._captured() if table != self.table]
        # In the order of the signal's own list.
        chosen = dict.fromkeys(t for names in named for t in captured if names(t))
        if not chosen:
            _log.warning("A signal of type execute-snapshot is skipped: none of its data-collections is captured.")
            return
        collections = [Collection(t, action.condition_of(t), action.surrogate_key) for t in chosen]
        if action.kind is SnapshotKind.BLOCKING:
            at_once = tuple(
                collection for collection in collections if self._conditions_block or not collection.condition
            )
            self._queue.progress = self._queue.progress.with_blocking(at_once)
            collections = [collection for collection in collections if collection not in at_once]
        if collections and self._refusal:
            _log.warning("A signal of type execute-snapshot is skipped: %s", self._refusal)
        elif collections:
            self._queue.request(collections)

    def _act(self, signal: Signal) -> None:
        action = self._actions.get(signal.type)
        if action is None:
            _log.warning("A signal is skipped: wal2lake.signal.actions has no class for its type.")
            return
        try:
            action.arrived(signal)
        except Exception:
            # The user's own code failed: the stream continues without it.
            _log.exception("The class for signals of type %s raised an error.", signal.type)
