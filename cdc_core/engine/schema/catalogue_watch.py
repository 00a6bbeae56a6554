"""Finds in the catalogue what the stream does not announce: changes without a change of a row, and ended pauses."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from cdc_core.engine.schema.catalogue import Catalogue
from cdc_core.engine.schema.decisions import SchemaDecisions
from cdc_core.engine.schema.known_tables import KnownTables
from cdc_core.engine.schema.pauses import Pauses
from cdc_core.engine.schema.versions import SchemaVersions
from cdc_core.lake import Pause, SchemaVersion, TableVersions
from cdc_core.schema import Fingerprint, TableId


class CatalogueWatch:
    """Compares the tables that are open with the catalogue. For one thread.

    ``polled_at`` is the time (of ``time.monotonic``) of the last comparison. ``note_gone`` is called with each table
    that no longer exists, at each comparison.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        tables: KnownTables,
        pauses: Pauses,
        decisions: SchemaDecisions,
        versions: SchemaVersions,
        note_gone: Callable[[TableId], None] = lambda table: None,
    ) -> None:
        self._note_gone = note_gone
        self._catalogue = catalogue
        self._tables = tables
        self._pauses = pauses
        self._decisions = decisions
        self._versions = versions
        self._dropped_plans = 0
        self._stamp: str | None = None
        # The state of the catalogue at the last comparison, and what it was compared with, if both were the same.
        self._same: tuple[str, Mapping[TableId, Fingerprint | None]] | None = None
        self.polled_at = float("-inf")

    @property
    def is_poll_due(self) -> bool:
        """Whether ``poll`` must run again because an earlier change of the stream replaced one that it had found."""
        return self._versions.dropped_plans != self._dropped_plans

    def poll(self, wal_lsn: Callable[[], int]) -> None:
        """Check if fingerprints in the catalogue changed without a Relation message. One query, if none did."""
        self.polled_at = time.monotonic()
        if self._stamp is None:
            # Before the comparison: any later change alters the stamp.
            self._stamp = self._storage_stamp()
        self._pauses.find_returned()
        for table, state in self._tables.opened.items():
            if state.paused is not None and (state.schema_version is None or state.reread is None):
                self._look_at_paused(table, state, state.paused)
        # A table that was renamed to another captured name is known by both names.
        known = [
            (state.schema_version.table.oid, table, state)
            for table, state in self._tables.opened.items()
            if state.schema_version is not None and not state.holds_back
        ]
        self._dropped_plans = self._versions.dropped_plans
        oids = {oid for oid, _, _ in known}
        # The stamp is computed before the fingerprints are read: what changes in between alters the next one.
        compared = self._catalogue.marks_stamp(oids), {table: state.seen for _, table, state in known}
        if compared == self._same:
            return
        marks = self._catalogue.fingerprints(oids)
        others = [(table, state, marks.get(oid)) for oid, table, state in known if not _is_same(state, marks.get(oid))]
        self._same = None if others else compared
        for table, state, fingerprint in others:
            if state.schema_version is not None:
                self._look(table, state, state.schema_version, fingerprint, wal_lsn)

    def poll_if_altered(self, wal_lsn: Callable[[], int]) -> None:
        """As ``poll``, but only if values may have changed without an event since the last call. One small query.

        Everything that was committed before the call is seen, so the recorded state is current.
        """
        stamp = self._storage_stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            self.poll(wal_lsn)

    def can_go_on(self, table: TableId) -> bool:
        """Whether a paused table's changes can be merged with its source's current schema version, without a re-read.

        Raises TableError if the cause of the pause still exists.
        """
        state = self._tables.of(table)
        if state.schema_version is None or state.reread is not None or state.owed is not None:
            return False
        return self._decisions.can_go_on(table, state, state.schema_version, self._catalogue.current(table))

    def _storage_stamp(self) -> str:
        # ``poll`` passes over tables that are re-read: what happened meanwhile to one is looked at once it was.
        opened = [state for state in self._tables.opened.values() if state.reread is None]
        return self._catalogue.storage_stamp(
            {state.schema_version.table.oid for state in opened if state.schema_version is not None}
        )

    def _look(
        self,
        table: TableId,
        state: TableVersions,
        base: SchemaVersion,
        fingerprint: Fingerprint | None,
        wal_lsn: Callable[[], int],
    ) -> None:
        """Handle a table whose fingerprint changed, or that no longer exists."""
        current = self._catalogue.current(table)
        if current is None:
            self._note_gone(table)
        # Queried after the catalogue: every change visible there was committed before this LSN.
        lsn = wal_lsn()
        decision = self._decisions.decide(state, base.table, None, current)
        self._versions.note_seen(table, fingerprint if current is None else current.fingerprint)
        if decision.table is None:
            self._pauses.hold_back(table, decision, lsn)
        elif current is not None:
            self._versions.follow_after(table, base, decision, decision.table, lsn)

    def _look_at_paused(self, table: TableId, state: TableVersions, paused: Pause) -> None:
        """Resume a paused table by a re-read if the user has removed the cause of the pause."""
        if self._decisions.ends_by_itself(paused) and self._decisions.is_cause_gone(
            table, state, self._catalogue.current(table)
        ):
            self._pauses.resume(table, paused.lsn)
            self._pauses.want_reread(table, "the cause of the pause no longer exists")


def _is_same(state: TableVersions, fingerprint: Fingerprint | None) -> bool:
    """Whether nothing is to be decided; a table that no longer exists (None) may be created again at any time."""
    seen = state.seen
    return fingerprint is not None and seen is not None and seen.is_exact and seen.is_same(fingerprint)
