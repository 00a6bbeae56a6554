"""Removes old changes from the changelogs once they are no longer needed, once a day for each table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from cdc_core.clock import DAY_US, now_us
from cdc_core.engine.round.merge_state import MergeState
from cdc_core.engine.round.table_state import MergeStates
from cdc_core.errors import CdcError
from cdc_core.lake import LakePaths, LakePosition, LakeTable, StreamTable, StreamTables
from cdc_core.schema import TableId
from cdc_core.selection import NumberByTable

_log = logging.getLogger(__name__)


class Expiry:
    """Removes merged changes older than the ``days`` of their table (0: none are removed).

    Rows of the stream's own tables have the default.
    """

    def __init__(self, paths: LakePaths, scope: str, merge_states: MergeStates, days: NumberByTable) -> None:
        self._paths = paths
        self._scope = scope
        self._merge_states = merge_states
        self._days = days
        self._done_on: int | None = None

    @property
    def is_due(self) -> bool:
        """Whether nothing was removed today."""
        return self._done_on != now_us() // DAY_US

    def between_rounds(self, needed: Mapping[TableId, int] | None = None) -> None:
        """Remove expired changes. If another writer conflicts, the table keeps its rows until the next run.

        ``needed``: of these tables, the changes after an LSN are still needed by an incremental snapshot.
        """
        now = now_us()
        self._done_on = now // DAY_US
        for table, merge_state in self._merge_states:
            days = int(self._days.for_table(table))
            if not days:
                continue
            upto = self._needless(merge_state, (needed or {}).get(table))
            place = LakePosition(merge_state.token, merge_state.shown) if merge_state.waiting else None
            self._expire(table, partial(LakeTable(self._paths, self._scope, table).expire, upto, now, days, place))
        own_tables = StreamTables(self._paths, self._scope, 0)
        for own in StreamTable if self._days.default else ():
            # Nothing reads them again.
            self._expire(own.id, partial(own_tables.expire, own, now, int(self._days.default)))

    def _expire(self, table: TableId, expire: Callable[[], object]) -> None:
        try:
            expire()
        except CdcError as error:
            _log.warning("Expired changes of %s were not removed; the next attempt follows. %s", table, error.message)

    def _needless(self, merge_state: MergeState, needed: int | None) -> int | None:
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
        return upto
