"""The merge states of all tables: the one place for what a run knows of a table (``merge_state``)."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

from cdc_core.connector_threads import ConnectorThreadPool
from cdc_core.engine.round.lake import Lake, SourceWatch
from cdc_core.engine.round.merge_state import MergeState
from cdc_core.engine.schema.trouble import Trouble, trouble_of
from cdc_core.errors import UnreadableError
from cdc_core.lake import (
    LakeTable,
    RecordedTable,
    SliceOrder,
    SliceOutcome,
    SnapshotLog,
    TableVersions,
    TakenSnapshot,
    epoch_of,
)
from cdc_core.lsn import Lsn
from cdc_core.schema import PauseCause, TableId

_log = logging.getLogger(__name__)

_THREADS = 8
# Maintenance by other processes creates versions and expires earlier ones; they are detected within minutes.
_MAINTAINED_SECONDS = 120.0
_MAINTAINED_TABLES = 4


class MergeStates:
    """The merge states of all tables, read from the tables' commits when first needed."""

    def __init__(self, lake: Lake, watch: SourceWatch) -> None:
        self._paths = lake.paths
        self._scope = lake.scope
        self._options = lake.options
        self._freshness = lake.freshness
        self._run = lake.run
        self._watch = watch
        self._known: dict[TableId, MergeState] = {}
        self._snapshots = SnapshotLog(lake.paths.snapshots, epoch_of(lake.scope)).read()
        self.passed = 0
        """The LSN up to which everything received from the server is in the changelogs."""

    def open(self, tables: Iterable[TableId]) -> None:
        """Load the merge states of several tables in parallel."""
        names = list(tables)
        with ConnectorThreadPool(_THREADS) as pool:
            # In parallel only what concerns one table's folders: the schema versions may be used by one thread only.
            failed = list(pool.map(self._complete_events, names))
            states = list(pool.map(self._read, names, failed))
        for table, (merge_state, in_force) in zip(names, states, strict=True):
            merge_state.versions = self._watch.schema_versions.open(table, in_force)
            self._take_up(table)
            self._known[table] = merge_state
            if merge_state.is_former:
                reason = "its rows are of another server, or from before a gap"
                self._watch.pauses.want_reread(table, reason, is_first=True)
            if merge_state.trouble is not None:
                self.note_trouble(table, merge_state.trouble)

    def of(self, table: TableId) -> MergeState:
        """The table's merge state, which the caller may change."""
        if table not in self._known:
            self.open([table])
        self._watch.tables.of(table)
        return self._known[table]

    @property
    def unsettled(self) -> list[tuple[TableId, MergeState]]:
        """The tables whose state may have changed since ``settle``, or to which something is due: few of many."""
        return [(table, self._known[table]) for table in self._watch.tables.unsettled if table in self._known]

    def settle(self, table: TableId) -> None:
        """Leave the table out of ``unsettled`` until it is asked for by ``of`` again, or changed by a method here.

        For a table that shows the newest recorded round, and will show all later ones unless it is changed.
        """
        self._watch.tables.unsettled.pop(table, None)

    def reload(self, table: TableId) -> MergeState:
        """Reload the merge state after another writer changed the table, or after it was re-read."""
        self._snapshots = SnapshotLog(self._paths.snapshots, epoch_of(self._scope)).read()
        before = self._known.get(table)
        merge_state, in_force = self._read(table, self._complete_events(table))
        merge_state.versions = self._watch.tables.reopen(table, in_force)
        self._watch.schema_versions.require_carried(table)
        self._take_up(table)
        if before is not None:
            merge_state.take_over(before)
        self._known[table] = merge_state
        if merge_state.trouble is not None:
            self.note_trouble(table, merge_state.trouble)
        return merge_state

    def note_trouble(self, table: TableId, trouble: Trouble) -> None:
        """Pause a table whose folders cannot be used. When this returns, the pause is stored.

        If its changelog cannot be used, it is also stored that the table must be re-read: its changes may then be
        dropped, because the re-read replaces them.
        """
        merge_state = self.of(table)
        merge_state.trouble = trouble
        if trouble.loses_changes:
            self._watch.pauses.require_reread(table, trouble.reason)
        lsn = merge_state.merged or 0
        self._watch.pauses.pause(table, PauseCause.FOLDER, trouble.reason, trouble.remedy, lsn)

    def knows(self, table: TableId) -> bool:
        """Whether the table's merge state has been loaded."""
        return table in self._known

    @property
    def unmerged(self) -> dict[TableId, str]:
        """The tables that are not merged, with the reason; of several reasons, the pause."""
        unsettled = self.unsettled
        failed = {table: state.error for table, state in unsettled if state.awaits_retry}
        return failed | {table: s.versions.paused.reason for table, s in unsettled if s.versions.paused is not None}

    def __iter__(self) -> Iterator[tuple[TableId, MergeState]]:
        return iter(list(self._known.items()))

    def find_maintained_versions(self) -> None:
        """Find versions created by maintenance of tables that no round has changed for some minutes.

        Checks at most _MAINTAINED_TABLES tables per call, those with the oldest check first.
        """
        now = time.monotonic()
        due = [pair for pair in self._known.items() if now - pair[1].checked_at >= _MAINTAINED_SECONDS]
        for table, merge_state in sorted(due, key=lambda pair: pair[1].checked_at)[:_MAINTAINED_TABLES]:
            merge_state.checked_at = now
            try:
                position = None if merge_state.version is None else self._table(table).position()
            except UnreadableError:
                continue  # its next merge reports it
            if position is None or position.version is None:
                continue
            if position.place == (merge_state.token, merge_state.shown):
                self._note_foreign(table, position.identity, position.version)
                self.of(table).seen(position.version, position.identity, merge_state.shown)

    def merge_done(self, order: SliceOrder, outcome: SliceOutcome, began: float) -> None:
        """A slice of a table was merged (``MergeState.merge_done``) by a round that ``began`` then (monotonic seconds).

        A table whose target lag is more than that of others rests for half of it.
        """
        if outcome.lake is not None:
            self._note_foreign(order.table, outcome.lake.identity, outcome.lake.version - 1)
        is_replay = order.merge is not None and order.merge.replay is not None
        known = self.of(order.table)
        known.merge_done(outcome, order.schema.schema_version, is_replay=is_replay)
        least, seconds = self._freshness.least, self._freshness.for_table(order.table)
        if seconds > least:
            # Half a round less: rounds do not begin to the millisecond, and the table would be left to the next one.
            known.rest(began + seconds / 2 - least / 4)

    def call_all(self) -> None:
        """Merge every table with the next round, also those that rest."""
        for _, known in self.unsettled:
            known.call()

    def compare(self, recorded: Iterable[RecordedTable]) -> None:
        """Compare the lake tables with the versions that the newest round of earlier runs recorded.

        A table with an earlier one is an older copy: it is to be re-read, because the slot does not send again what
        such a copy of it and of its changelog lacks.
        """
        for entry in recorded:
            known = self._known.get(entry.table)
            is_same = known is not None and entry.identity is not None and known.identity == entry.identity
            if known is None or not is_same or known.version is None or entry.version is None:
                continue
            if known.version < entry.version:
                reason = (
                    f"its folder has version {known.version}, but version {entry.version} was written: an older copy"
                )
                self._watch.pauses.want_reread(entry.table, reason)
            else:
                self._warn_of(entry.table, self._table(entry.table).foreign_commit(entry.version, known.version))

    def _note_foreign(self, table: TableId, identity: str | None, upto: int) -> None:
        known = self._known[table]
        if known.version is not None and known.identity == identity:
            self._warn_of(table, self._table(table).foreign_commit(known.version, upto, identity or "", self._run))

    @staticmethod
    def _warn_of(table: TableId, foreign: int | None) -> None:
        if foreign is not None:
            _log.warning(
                "%s: version %d of its lake table was written by another program, so the table may differ from its "
                "source. Compare them with wal2lake reconcile; wal2lake snapshot with %s reads the table again.",
                *(table, foreign, table),
            )

    def overlap(self, table: TableId) -> TakenSnapshot | None:
        """Return the snapshot whose rows the next slice may contain again; None once later changes are merged."""
        merge_state = self._known[table]
        taken = self._snapshots.get((table, merge_state.token or 0))
        if taken is None or (merge_state.merged is not None and merge_state.merged >= taken.lsn):
            return None
        return taken

    def holds_back(self, table: TableId, to_lsn: int) -> bool:
        """Whether nothing may be merged into the table in a round to ``to_lsn``."""
        known = self._known[table]
        return known.has_failed or known.versions.holds_back or known.is_waiting(max(self.passed, to_lsn))

    def is_due(self, table: TableId, to_lsn: int) -> bool:
        """Whether a round to ``to_lsn`` without a batch has work for the table."""
        return self._known[table].is_due(to_lsn) and not self.holds_back(table, to_lsn)

    def _take_up(self, table: TableId) -> None:
        with suppress(UnreadableError):  # the table is in trouble by then, or its next merge reports it
            self._watch.schema_versions.take_up(table, self._table(table).last_schema_version)

    def _complete_events(self, table: TableId) -> UnreadableError | None:
        """Append the rows of the snapshot in force to the changelog, if they are requested and not in it.

        This must be done before anything is merged, because after that the lake table no longer shows the snapshot
        alone. Returns the error if a folder of the table cannot be used.
        """
        if not self._options.changelog_reads:
            return None
        try:
            if not self._is_mixed(table):
                self._table(table).complete_reads(self._options.lake_history_minutes)
        except UnreadableError as error:
            return error
        return None

    def _read(self, table: TableId, failed: UnreadableError | None) -> tuple[MergeState, int | None]:
        """Return the state and the number of the lake table's schema version, by reading the table's commits.

        If its folders cannot be used, or ``failed`` says so, it has only the position of its changelog, if readable.
        """
        if failed is None:
            try:
                return self._read_commits(table)
            except UnreadableError as error:
                failed = error
        merge_state = MergeState(TableVersions(), trouble=trouble_of(failed, table, self._paths))
        with suppress(UnreadableError):
            merge_state.changelog = self._table(table).changelog_end()
        return merge_state, None

    def _read_commits(self, table: TableId) -> tuple[MergeState, int | None]:
        """As ``_read``. Raises UnreadableError."""
        position = self._table(table).position(is_complete=True)
        position.check_mode(self._options.delete_modes.of(table))
        if position.lacks_changelog:
            _log.warning("%s: its changelog no longer exists: a new one is begun, without the earlier changes.", table)
        taken = self._snapshots.get((table, position.place.merge_token))
        merge_state = MergeState.at(position, taken, has_quarantine=self._table(table).has_quarantine())
        return merge_state, position.schema_version

    def _table(self, table: TableId) -> LakeTable:
        return LakeTable(self._paths, self._scope, table)

    def _is_mixed(self, table: TableId) -> bool:
        """Whether the snapshot in force has rows that it does not show, and that are thus no read events of it."""
        taken = self._snapshots.get((table, self._table(table).place().merge_token))
        return taken is not None and taken.since is not None


def first_lsn(taken: TakenSnapshot | None) -> Lsn:
    """The LSN up to which a snapshot contains every change."""
    return Lsn(0) if taken is None or taken.floor is None else taken.floor
