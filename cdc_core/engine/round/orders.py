"""The orders of a round: what each table's task is to append, up to which LSN it merges, and in which schema version.

New schema versions of a table are numbered here, before its rows are appended under these numbers; that may pause the
table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from cdc_core.engine.reading.batch import Batch
from cdc_core.engine.reading.tables import TableRegistry
from cdc_core.engine.round.table_state import MergeStates, first_lsn
from cdc_core.engine.schema.versions import SchemaVersions
from cdc_core.lake import Merge, Replay, SliceOrder, SnapshotInForce, TargetSchema
from cdc_core.lsn import just_after
from cdc_core.quality import ConstraintsSeen
from cdc_core.schema import TableId, TableSchema


class Orders:
    """Creates orders from the merge states of the tables. For one thread."""

    def __init__(
        self,
        states: MergeStates,
        schema_versions: SchemaVersions,
        registry: TableRegistry,
        constraints: ConstraintsSeen,
    ) -> None:
        self._states = states
        self._schema_versions = schema_versions
        self._registry = registry
        self._constraints = constraints

    def of_round(self, batch: Batch | None, to_lsn: int, replays: Mapping[TableId, Replay]) -> list[SliceOrder]:
        """Return one order for each table with rows in the batch, unmerged changes in its changelog, or a replay.

        The rows of a table that rests are appended only.
        """
        in_batch = {} if batch is None else batch.versions
        orders = []
        if batch is not None:
            kept = [table for table in in_batch if not self._states.of(table).loses_changes]
            orders = [self._of_batch(batch, table, to_lsn) for table in kept]
        due = [t for t, _ in self._states.unsettled if t not in in_batch and self._states.is_due(t, to_lsn)]
        return self._with_replays(orders + [self._order(table, to_lsn) for table in due], to_lsn, replays)

    def of_chunks(self, table: TableId, at: int) -> Merge:
        """Return the table, merged up to ``at``, for a task that writes rows of a snapshot to it."""
        order = self._order(table, at, is_mixed=True)
        return Merge.of(replace(order, snapshot=replace(order.snapshot, visible=None)))

    def _of_batch(self, batch: Batch, table: TableId, to_lsn: int) -> SliceOrder:
        merge_state, versions = self._states.of(table), batch.versions[table]
        files: list[tuple[int, str]] = []
        for version in versions:
            first = int(version.commits[0].lsns[0])
            current = self._registry.resolved_at(version.table)
            number = self._schema_versions.number(version.table, current, first, merge_state.token)
            files += [(number, str(path)) for path in version.paths]
        whole = batch.complete_to(table)
        is_whole = (whole is not None and whole <= to_lsn) or merge_state.is_due(to_lsn)
        # Numbering the schema versions may have paused the table.
        goes_on = is_whole and not merge_state.rests and not self._states.holds_back(table, to_lsn)
        order = self._order(table, to_lsn if goes_on else None, {number for number, _ in files})
        return order.appending(
            files,
            sum(version.rows for version in versions),
            (whole, batch.open_at(table)),
            merge_state.changelog,
            only_inserts=self._is_plain(order) and batch.only_inserts(table),
        )

    def _is_plain(self, order: SliceOrder) -> bool:
        """Whether the rows of a batch are all that is merged, and in the lake table's schema version."""
        schema, state = order.schema, self._states.of(order.table)
        is_mixed = state.backlog is not None or state.waiting or not schema.is_plain
        return not is_mixed and not order.snapshot.visible

    def _order(
        self, table: TableId, to_lsn: int | None, numbers: Iterable[int] = (), *, is_mixed: bool = False
    ) -> SliceOrder:
        """Return the order without rows of a batch. ``numbers``: schema versions of those that the caller adds.

        ``is_mixed``: rows of any schema version may be among those that are read.
        """
        state = self._states.of(table)
        order = SliceOrder(self._schema(table, to_lsn, numbers, is_mixed=is_mixed), self._snapshot(table))
        if to_lsn is None:
            return order
        has_backlog = state.backlog is not None
        return order.merging(to_lsn, has_backlog=has_backlog, waiting=state.waiting, recent=state.recent)

    def _schema(self, table: TableId, to_lsn: int | None, numbers: Iterable[int], *, is_mixed: bool) -> TargetSchema:
        merge_state, known = self._states.of(table), self._known(table)
        versions = merge_state.versions
        number = 0 if versions.schema_version is None else versions.schema_version.number
        is_mixed |= merge_state.backlog is not None or merge_state.waiting
        is_mixed |= any(version != number for version in numbers) or bool(versions.pending)
        since = {} if to_lsn is None else self._constraints.since(known)
        return self._schema_versions.target(versions, known, since, is_mixed=is_mixed and to_lsn is not None)

    def _snapshot(self, table: TableId) -> SnapshotInForce:
        merge_state, overlap = self._states.of(table), self._states.overlap(table)
        return SnapshotInForce(
            token=merge_state.token or 0,
            merged=merge_state.merged,
            visible=None if overlap is None else overlap.visible,
            floor=int(first_lsn(overlap)),
            resumed=None if overlap is None or merge_state.merged is not None else overlap.since,
        )

    def _with_replays(
        self, orders: list[SliceOrder], to_lsn: int, replays: Mapping[TableId, Replay]
    ) -> list[SliceOrder]:
        by_table = {order.table: order for order in orders}
        for table, replay in replays.items():
            merge_state = self._states.of(table)
            if merge_state.versions.holds_back:
                continue
            order = by_table.get(table) or self._order(table, max(to_lsn, just_after(merge_state.merged or 0)))
            by_table[table] = order.with_replay(replay)
        return list(by_table.values())

    def _known(self, table: TableId) -> TableSchema:
        schema_version = self._states.of(table).versions.schema_version
        return self._registry.current(table) if schema_version is None else schema_version.table
