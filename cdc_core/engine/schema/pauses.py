"""Which tables are paused, and which must be re-read before anything is merged into them.

Both are recorded in the schema log before they take effect, so they hold for later runs, too. A re-read that cannot be
made now is *owed*: the table is paused, or nothing has its name; it is made once the table is resumed or exists again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from cdc_core.engine.schema.state import TableVersions
from cdc_core.lake.stores.schema_log import History, SchemaLog
from cdc_core.schema.changes import PauseCause, Policy, SchemaChanges
from cdc_core.schema.fingerprint import Fingerprint
from cdc_core.schema.table import TableId, TableSchema

_log = logging.getLogger(__name__)


class Catalogue(Protocol):
    """The queries to the source (``cdc_core.postgres.catalog.tables.Catalog``)."""

    def current(self, name: TableId) -> TableSchema | None:
        """Return the table as it is now, with its fingerprint; None if it does not exist."""

    def fingerprints(self, oids: Iterable[int]) -> dict[int, Fingerprint]:
        """Return the fingerprints by oid."""

    def storage_stamp(self, oids: Iterable[int]) -> str:
        """Return a text that is another one once the tables' values may have changed without an event."""


class Pauses:
    """The states of the tables by name (``tables``), of which this changes what concerns pauses and re-reads.

    For one thread.
    """

    def __init__(self, log: SchemaLog, catalogue: Catalogue, policy: Policy) -> None:
        self._log = log
        self._catalogue = catalogue
        self._policy = policy
        self._histories: dict[TableId, History] = log.read()
        self.tables: dict[TableId, TableVersions] = {}

    def open(self, table: TableId, in_force: int | None) -> TableVersions:
        """Load the table's state; ``in_force`` is the number in its lake table's commits, None if there is none."""
        history = self._histories.get(table, History({}))
        state = TableVersions(dict(history.versions), in_force=in_force or 0, paused=history.paused)
        if in_force is not None and in_force in history.versions:
            state.schema_version = history.versions[in_force]
            state.seen = state.schema_version.table.fingerprint
        if history.reread is not None and (in_force or 0) <= history.reread[0]:
            state.reread, state.owed = (
                (history.reread[1], None) if history.paused is None else (None, history.reread[1])
            )
        self.tables[table] = state
        return state

    def reopen(self, table: TableId, in_force: int | None) -> TableVersions:
        """Reload the state after the table was re-read."""
        self._histories = self._log.read()
        return self.open(table, in_force)

    def recorded_at(self, table: TableId, schema_version: int) -> int:
        """Return the LSN with which a schema version was recorded; 0 if it is not known."""
        return self._histories.get(table, History({})).lsns.get(schema_version, 0)

    def leave_out(self, is_captured: Callable[[TableId], bool]) -> None:
        """Record that tables of the lake that the options exclude are to be re-read once they are captured again.

        Their changes from now on are not in the lake. A table under a name that is captured is not concerned.
        """
        for table, history in self._histories.items():
            newest = max(history.versions, default=0)
            is_owed = history.reread is not None and history.reread[0] >= newest
            if newest and not is_owed and table not in self.tables and not is_captured(table):
                history.reread = (newest, "it was not captured for some time")
                self._log.want_reread(table, history.reread[1], newest, 0)

    def pause(self, table: TableId, cause: PauseCause, reason: str, remedy: str, lsn: int) -> None:
        """Stop merging the table and log the reason; its changes are still appended to its changelog."""
        state = self.tables[table]
        if state.paused is None:
            _log.warning("%s is paused: %s %s", table, reason, remedy)
            state.paused = self._log.pause(table, cause, reason, remedy, lsn)

    def resume(self, table: TableId, lsn: int) -> None:
        """Resume a paused table."""
        self._log.resume(table, lsn)
        state = self.tables[table]
        state.paused, state.reread, state.owed = None, state.reread or state.owed, None

    def want_reread(self, table: TableId, reason: str, *, is_first: bool = False) -> None:
        """Record that the table must be re-read, or pause it if the policy requires it (not for its first snapshot)."""
        state = self.tables[table]
        if self._policy.changes is SchemaChanges.PAUSE and not is_first:
            remedy = f"Run wal2lake replay with {table}, or set wal2lake.lake.schema.changes=reread."
            self.pause(table, PauseCause.SCHEMA_CHANGE, f"{table} must be re-read: {reason}", remedy, 0)
        elif state.reread is None and state.paused is None:
            _log.warning("%s is re-read: %s", table, reason)
            self._log.want_reread(table, reason, state.newest, 0)
            state.reread = reason

    def require_reread(self, table: TableId, reason: str) -> None:
        """Store that a table must be re-read before it is merged again, also if it is paused."""
        state = self.tables[table]
        if state.reread is None:
            self._log.want_reread(table, reason, state.newest, 0)
            state.reread = reason

    def owe_reread(self, table: TableId, reason: str) -> None:
        """Record that the table must be re-read, at the latest when its name exists again or it is resumed."""
        state = self.tables.get(table)
        if state is None:
            history = self._histories[table]
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
        for table, state in self.tables.items():
            if not (state.absent or state.owed is not None) or self._catalogue.current(table) is None:
                continue
            state.absent = False
            if state.owed is not None and state.paused is None:
                reason, state.owed = state.owed, None
                self.want_reread(table, reason)

    def can_be_read(self, table: TableId) -> bool:
        """Whether the table exists, so that a re-read can begin; if not, it is made once the table exists again."""
        state = self.tables[table]
        if not state.absent and self._catalogue.current(table) is None:
            _log.warning("%s does not exist now; it is re-read when it exists again.", table)
            state.absent = True
        return not state.absent

    def holders(self, oids: set[int]) -> dict[int, list[TableId]]:
        """Return, by oid, the lake tables that were read from these tables; also names that are not opened."""
        found: dict[int, list[TableId]] = {}
        for table in self.tables.keys() | self._histories.keys():
            state = self.tables.get(table)
            if state is None:
                versions = list(self._histories[table].versions.values())
            else:
                versions = [] if state.schema_version is None else [state.schema_version]
            for oid in {version.table.oid for version in versions} & oids:
                found.setdefault(oid, []).append(table)
        return found
