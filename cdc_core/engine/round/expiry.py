"""Removes old changes from the changelogs once they are no longer needed, once a day for each table."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from cdc_core.clock import now_us
from cdc_core.engine.round.table_state import MergeState, MergeStates
from cdc_core.errors import CdcError
from cdc_core.lake.maintenance.retention import DAY_US, expire_changes
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import LakePosition
from cdc_core.lake.stores.quarantine import first_waiting
from cdc_core.lake.stores.stream_table import StreamTable
from cdc_core.schema.table import TableId

_log = logging.getLogger(__name__)

_ANY = 2**62  # greater than any LSN


class Expiry:
    """Removes merged changes older than ``days`` (wal2lake.changelog.retention.days; 0: none are removed)."""

    def __init__(self, paths: LakePaths, scope: str, merge_states: MergeStates, days: int) -> None:
        self._paths = paths
        self._scope = scope
        self._merge_states = merge_states
        self._days = days
        self._done_on: int | None = None

    def between_rounds(self, needed: Mapping[TableId, int] | None = None) -> None:
        """Remove expired changes if due. If another writer conflicts, the table keeps its rows until the next run.

        ``needed``: of these tables, the changes after an LSN are still needed by an incremental snapshot.
        """
        now = now_us()
        today = now // DAY_US
        if not self._days or self._done_on == today:
            return
        self._done_on = today
        for table, merge_state in self._merge_states:
            self._expire(
                table, self._paths.changelog(table), self._needless(table, merge_state, (needed or {}).get(table)), now
            )
        for own in StreamTable:
            # Nothing reads them again.
            self._expire(own.id, own.path(self._paths), _ANY, now)

    def _expire(self, table: TableId, path: str, upto: int | None, now: int) -> None:
        try:
            expire_changes(path, self._scope, table, upto, now, self._days)
        except CdcError as error:
            _log.warning("Expired changes of %s were not removed; the next attempt follows. %s", table, error.message)

    def _needless(self, table: TableId, merge_state: MergeState, needed: int | None) -> int | None:
        """Return the LSN up to which no change of a table is needed; None if every change may be needed.

        Read later than by their merge are: by a replay, the changes in quarantine; by an incremental snapshot, those
        since its last rows were written, also while it is paused or its table is (``lake_snapshots``); and by the
        merges after a re-read, those since the snapshot that is being taken, which are merged into the former content
        until then.
        """
        upto = merge_state.merged
        if upto is None or merge_state.versions.reread is not None:
            return None
        if needed is not None:
            upto = min(upto, needed)
        if merge_state.waiting:
            place = LakePosition(merge_state.token, merge_state.shown)
            first = first_waiting(self._paths.quarantine(table), place)
            upto = upto if first is None else min(upto, first - 1)
        return upto
