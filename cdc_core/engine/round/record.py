"""Records rounds: after each round, the version of every table that shows the source as of the round's LSN."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from cdc_core.engine.round.merge_state import MergeState
from cdc_core.engine.round.table_state import MergeStates
from cdc_core.lake import RecordedTable, RoundLog, TableState
from cdc_core.lsn import Lsn, last_begin
from cdc_core.schema import TableId

_POLL_SECONDS = 5.0


class Cuts:
    """Records the merge states of all tables. For one thread.

    A round costs what its changed tables cost, however many there are: of a table that is settled (``MergeStates``),
    what was recorded of it holds for every later LSN.

    ``look`` notes in the merge states which tables were altered without an event, up to the time of the call: an ALTER
    that rewrites values, committed at or before the round's LSN, is not in the lake.
    """

    def __init__(self, log: RoundLog, merge_states: MergeStates, look: Callable[[], None]) -> None:
        self._log = log
        self._merge_states = merge_states
        self._look = look
        self._known: dict[TableId, RecordedTable] = {}
        self._last: tuple[RecordedTable, ...] | None = None
        self._ahead: frozenset[TableId] = frozenset()
        self._last_lsn: Lsn | None = None
        self._committed: tuple[int, datetime] | None = None
        self._checked_at = float("-inf")

    def compare_with_last(self) -> None:
        """Compare the lake tables that are open with the newest recorded round."""
        newest = self._log.newest_of_epoch()
        self._merge_states.compare(() if newest is None else newest.tables)

    def note_commit(self, lsn: int, commit_ts_us: int | None) -> None:
        """Record the source's commit time (microseconds since 1970) of the last transaction up to ``lsn``."""
        if commit_ts_us is not None:
            at = datetime.fromtimestamp(commit_ts_us / 1e6, UTC)
            # Concurrent transactions get their commit times shortly before their positions in the WAL.
            self._committed = (lsn, at if self._committed is None else max(at, self._committed[1]))

    def record(self, lsn: int) -> None:
        """Record the state of all tables, once everything up to ``lsn`` is in the changelogs.

        Nothing is written if the newest recorded round is equal or has a later LSN: when the slot sends changes again
        after a crash, some tables already contain later ones.
        """
        if self._last_lsn is None:
            self._begin()
        self._merge_states.find_maintained_versions()
        self._look()
        if self._last_lsn is not None and lsn < self._last_lsn:
            return
        tables = self.tables_at(lsn)
        if not tables:
            return
        if self._last_lsn == lsn and self._last == tables:
            self._settle(lsn)
        elif self._log.append(lsn, None if self._committed is None else self._committed[1], tables):
            self._note_last(tables, Lsn(lsn))
            self._settle(lsn)

    def between_rounds(self, passed: int) -> None:
        """Record the round again if the state of a table changed without a round: re-read, resumed, compacted.

        ``passed`` is the LSN up to which everything is in the changelogs: a commit, or the end of a record. A commit
        that begins right at such an end is not in the changelogs, and the round may not have its LSN (``last_begin``).
        Called often; checks at intervals of _POLL_SECONDS, and at once where the stream has passed what a former run
        had merged: such a table is ahead of the round until then, and on a quiet server no other round follows.
        """
        if self._last_lsn is None:
            self._begin()
        newest = self._last_lsn or Lsn(0)
        lsn = max(last_begin(passed), newest)
        is_due = time.monotonic() - self._checked_at >= _POLL_SECONDS
        if passed < newest or not (is_due or self._has_caught_up(lsn)):
            return
        self._checked_at = time.monotonic()
        self._merge_states.find_maintained_versions()
        if self.tables_at(lsn) != self._last:
            self.record(lsn)
        else:
            self._settle(newest)

    def _has_caught_up(self, lsn: int) -> bool:
        """Whether a table that was ahead of the newest round is not ahead of ``lsn``."""
        return bool(self._ahead) and any(
            recorded.table in self._ahead and recorded.state is not TableState.AHEAD for recorded in self.tables_at(lsn)
        )

    def tables_at(self, lsn: int) -> tuple[RecordedTable, ...]:
        """Return the state of every known table at an LSN, not before that of the newest round, ordered by name."""
        before = len(self._known)
        for table, merge_state in self._merge_states.unsettled:
            state = self._state_at(table, merge_state, lsn)
            is_current = state is TableState.CURRENT
            version = merge_state.version if is_current else None
            identity = merge_state.identity if is_current else None
            self._known[table] = RecordedTable(table, state, version, merge_state.token, merge_state.shown, identity)
        if len(self._known) > before:
            self._known = dict(sorted(self._known.items()))
        return tuple(self._known.values())

    def _settle(self, lsn: int) -> None:
        """Leave out of later comparisons the tables that show the source at ``lsn``, the newest round's, and are quiet.

        ``tables_at`` has returned their present state. A table that is ahead of the newest round is not settled.
        """
        for table, merge_state in self._merge_states.unsettled:
            if merge_state.is_quiet and self._state_at(table, merge_state, lsn) is TableState.CURRENT:
                self._merge_states.settle(table)

    def _state_at(self, table: TableId, merge_state: MergeState, lsn: int) -> TableState:
        overlap = self._merge_states.overlap(table)
        return state_at(merge_state, None if overlap is None else overlap.lsn, lsn)

    def _note_last(self, tables: tuple[RecordedTable, ...], lsn: Lsn) -> None:
        self._last, self._last_lsn = tables, lsn
        self._ahead = frozenset(recorded.table for recorded in tables if recorded.state is TableState.AHEAD)

    def _begin(self) -> None:
        """Load the newest recorded round of earlier runs."""
        newest = self._log.newest_of_epoch()
        self._last_lsn = self._log.newest_lsn or Lsn(0)
        if newest is not None:
            self._note_last(newest.tables, self._last_lsn)
            at = newest.head.committed_at
            if at is not None and self._committed is None:
                self._committed = (int(newest.head.lsn), at)


def state_at(merge_state: MergeState, read_at: int | None, lsn: int) -> TableState:
    """Return the state of a table relative to an LSN up to which its changelog is complete.

    ``read_at`` is the LSN of the snapshot in force while no later change is merged, else None.
    """
    versions, merged = merge_state.versions, merge_state.merged
    waits = merge_state.backlog is not None and merge_state.backlog <= lsn
    # ``backlog`` may be the commit of an incomplete transaction; ``whole`` is the last complete one before it.
    lacks = merge_state.whole is not None and (merged is None or merged < merge_state.whole)
    rules = (
        (TableState.PAUSED, versions.paused is not None),
        (TableState.REREADING, versions.reread is not None),
        (TableState.UNREAD, merge_state.version is None),
        (TableState.FAILED, merge_state.failed_at is not None),
        (TableState.AHEAD, (merged or 0) > lsn or (read_at or 0) > lsn),
        (TableState.BEHIND, waits or lacks or bool(versions.pending)),
    )
    return next((state for state, holds in rules if holds), TableState.CURRENT)
