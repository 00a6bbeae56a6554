"""The lake tables as snapshots write them between two rounds (``engine/backfill``), which do so at rounds' positions.

Rows of chunks are written to a table that is merged past the chunks' LSN, without changing what rounds know of it but
that LSN. Blocking snapshots write by themselves; they get the numbers of the schema versions they create from here, and
what they wrote is loaded again.
"""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.engine.round.lake import SourceWatch
from cdc_core.engine.round.orders import Orders
from cdc_core.engine.round.table_state import MergeStates
from cdc_core.errors import TransientError
from cdc_core.lake import ChunkOrder, ChunkOutcome, Merge, Work, write_chunks
from cdc_core.lsn import last_begin
from cdc_core.schema import TableId, TableSchema, same_columns, same_layout


class BackfillTarget:
    """Implements ``backfill.snapshots.Lake``. For the thread of the rounds."""

    def __init__(self, work: Work, states: MergeStates, orders: Orders, watch: SourceWatch) -> None:
        self._work = work
        self._states = states
        self._orders = orders
        self._watch = watch

    def is_current(self, table: TableSchema) -> bool:
        """Whether the lake table has the schema version of this description of its source and is merged by rounds.

        For a table that the lake does not know, the description becomes its first schema version.
        """
        state = self._states.of(table.id).versions
        if state.holds_back or table.id in self._watch.rereads:
            return False
        known = (
            self._watch.schema_versions.adopt(table, self._watch.wal_lsn())
            if state.schema_version is None
            else state.schema_version
        )
        is_followed = state.waiting is None and state.in_force == known.number
        return is_followed and same_layout(known.table, table) and same_columns(known.table, table)

    def order_for_chunks(self, table: TableId, reached: int, passed: int) -> Merge | None:
        """Return what a task needs to write incremental-snapshot rows, once changes up to ``reached`` are merged.

        None before that. Its ``to_lsn`` is the LSN up to which the table is merged; ``passed`` as for
        ``LakeSink.between_rounds``.
        """
        merge_state = self._states.of(table)
        # If the changelog has no unmerged change, the table contains everything that the stream has delivered.
        passed_by_table = passed if merge_state.backlog is None else 0
        merged = merge_state.merged or 0
        if max(passed_by_table, merged) < reached or self._states.holds_back(table, passed):
            merge_state.call()
            return None
        return self._orders.of_chunks(table, max(last_begin(passed_by_table), merged))

    def apply_chunks(self, order: ChunkOrder) -> ChunkOutcome:
        """Write rows of an incremental snapshot to the lake table in one commit; errors are returned in the outcome."""
        table = order.target.table.id
        outcome = write_chunks(self._work, order)
        if isinstance(outcome.error, TransientError):
            self._states.reload(table)
        elif outcome.error is None:
            self._note_applied(order.target, outcome)
        return outcome

    def reserve(self, tables: Sequence[TableId]) -> dict[TableId, int] | None:
        """Reserve numbers for the schema versions that these tables get when they are read.

        Returns None while one of them is being read.
        """
        if any(table in self._watch.rereads for table in tables):
            return None
        self._states.open(table for table in tables if not self._states.knows(table))
        return {table: self._watch.schema_versions.reserve(table) for table in tables}

    def note_read(self, table: TableId) -> None:
        """Load the table's merge state again after a snapshot of it was taken."""
        self._states.reload(table)

    def _note_applied(self, target: Merge, outcome: ChunkOutcome) -> None:
        version = None if outcome.applied is None else outcome.applied.version
        self._states.of(target.table.id).chunks_written(target.to_lsn, version, refused=bool(outcome.refused))
