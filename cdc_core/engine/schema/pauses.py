"""Which tables are paused, and which must be re-read before anything is merged into them.

Both are recorded in the schema log before they take effect, so they hold for later runs, too. A re-read that cannot be
made now is deferred (``owed``): the table is paused, or none has its name; it is made once that has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cdc_core.engine.schema.catalogue import Catalogue
from cdc_core.engine.schema.known_tables import KnownTables
from cdc_core.lake import SchemaLog
from cdc_core.schema import Decision, PauseCause, Policy, SchemaChanges, TableId

_log = logging.getLogger(__name__)


class Pauses:
    """Changes the pauses and re-reads of tables, in the log and then in their states. For one thread."""

    def __init__(self, log: SchemaLog, tables: KnownTables, catalogue: Catalogue, policy: Policy) -> None:
        self._log = log
        self._tables = tables
        self._catalogue = catalogue
        self._policy = policy

    def leave_out(self, is_captured: Callable[[TableId], bool]) -> None:
        """Record that tables of the lake that the options exclude are to be re-read once they are captured again.

        Their changes from now on are not in the lake. A table under a name that is captured is not concerned.
        """
        for table, history in self._tables.histories.items():
            newest = max(history.versions, default=0)
            is_owed = history.reread is not None and history.reread[0] >= newest
            if newest and not is_owed and table not in self._tables.opened and not is_captured(table):
                history.reread = (newest, "it was not captured for some time")
                self._log.want_reread(table, history.reread[1], newest, 0)

    def pause(self, table: TableId, cause: PauseCause, reason: str, remedy: str, lsn: int) -> None:
        """Stop merging the table and log the reason; its changes are still appended to its changelog."""
        state = self._tables.of(table)
        if state.paused is None:
            _log.warning("%s is paused: %s %s", table, reason, remedy)
            state.paused = self._log.pause(table, cause, reason, remedy, lsn)

    def hold_back(self, table: TableId, decision: Decision, lsn: int) -> None:
        """Have the table re-read or pause it, as was decided at ``lsn`` about a change that cannot be followed."""
        if decision.cause is None:
            self.want_reread(table, decision.reason)
        else:
            self.pause(table, decision.cause, decision.reason, decision.remedy, lsn)

    def resume(self, table: TableId, lsn: int) -> None:
        """Resume a paused table."""
        self._log.resume(table, lsn)
        state = self._tables.of(table)
        state.paused, state.reread, state.owed = None, state.reread or state.owed, None

    def want_reread(self, table: TableId, reason: str, *, is_first: bool = False) -> None:
        """Record that the table must be re-read, or pause it if the policy requires it (not for its first snapshot)."""
        state = self._tables.of(table)
        if self._policy.changes is SchemaChanges.PAUSE and not is_first:
            remedy = f"Run wal2lake replay with {table}, or set wal2lake.lake.schema.changes=reread."
            self.pause(table, PauseCause.SCHEMA_CHANGE, f"{table} must be re-read: {reason}", remedy, 0)
        elif state.reread is None and state.paused is None:
            _log.warning("%s is re-read: %s", table, reason)
            self._log.want_reread(table, reason, state.newest, 0)
            state.reread = reason

    def require_reread(self, table: TableId, reason: str) -> None:
        """Store that a table must be re-read before it is merged again, also if it is paused."""
        state = self._tables.of(table)
        if state.reread is None:
            self._log.want_reread(table, reason, state.newest, 0)
            state.reread = reason

    def owe_reread(self, table: TableId, reason: str) -> None:
        """Record that the table must be re-read, at the latest when its name exists again or it is resumed."""
        state = self._tables.of(table) if table in self._tables.opened else None
        if state is None:
            history = self._tables.histories[table]
            newest = max(history.versions)
            if history.reread is None or history.reread[0] < newest:
                history.reread = (newest, reason)
                self._log.want_reread(table, reason, newest, 0)
        elif state.reread is None and state.owed is None:
            if state.paused is None and self._catalogue.current(table) is not None:
                self.want_reread(table, reason)
            else:
                self._log.want_reread(table, reason, state.newest, 0)
                state.owed = reason

    def find_returned(self) -> None:
        """Find tables that exist again and are to be re-read."""
        for table in list(self._tables.unsettled):
            state = self._tables.of(table)
            if not (state.absent or state.owed is not None) or self._catalogue.current(table) is None:
                continue
            state.absent = False
            if state.owed is not None and state.paused is None:
                reason, state.owed = state.owed, None
                self.want_reread(table, reason)

    def can_be_read(self, table: TableId) -> bool:
        """Whether the table exists, so that a re-read can begin; if not, it is made once the table exists again."""
        state = self._tables.of(table)
        if not state.absent and self._catalogue.current(table) is None:
            _log.warning("%s does not exist now; it is re-read when it exists again.", table)
            state.absent = True
        return not state.absent
