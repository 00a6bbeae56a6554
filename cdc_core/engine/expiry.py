"""Removes old changes from the changelogs once they are no longer needed, once a day for each table."""

from __future__ import annotations

import logging

from cdc_core.clock import now_us
from cdc_core.engine.merge_state import MergeState, MergeStates
from cdc_core.errors import CdcError
from cdc_core.schema.table import TableId
from cdc_core.sink.delta.paths import LakePaths
from cdc_core.sink.delta.quarantine import Place, first_waiting
from cdc_core.sink.delta.retention import DAY_US, expire_changes

_log = logging.getLogger(__name__)


class Expiry:
    """Removes merged changes older than ``days`` (wal2lake.changelog.retention.days; 0: none are removed)."""

    def __init__(self, paths: LakePaths, slot: str, merge_states: MergeStates, days: int) -> None:
        self._paths = paths
        self._slot = slot
        self._merge_states = merge_states
        self._days = days
        self._done_on: int | None = None

    def between_rounds(self) -> None:
        """Remove expired changes if due. If another writer conflicts, the table keeps its rows until the next run."""
        now = now_us()
        today = now // DAY_US
        if not self._days or self._done_on == today:
            return
        self._done_on = today
        for table, merge_state in self._merge_states:
            try:
                upto = self._needless(table, merge_state)
                expire_changes(self._paths.changelog(table), self._slot, table, upto, now, self._days)
            except CdcError as error:
                _log.warning(
                    "Expired changes of %s were not removed; the next attempt follows. %s", table, error.message
                )

    def _needless(self, table: TableId, merge_state: MergeState) -> int | None:
        """Return the LSN up to which no change of a table is needed. A replay reads changes in quarantine again."""
        if not merge_state.waiting or merge_state.merged is None:
            return merge_state.merged
        first = first_waiting(self._paths.quarantine(table), Place(merge_state.token or 0, merge_state.shown or 0))
        return merge_state.merged if first is None else min(merge_state.merged, first - 1)
