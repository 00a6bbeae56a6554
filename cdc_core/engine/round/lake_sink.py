"""The lake sink of the engine: a round is one Spark job over all tables with changes, and a recorded consistent cut.

    batch ─▶ one order per table ─▶ one job (engine/slice/task) ─▶ durable: the position may be confirmed
                                                                ─▶ Spark's MERGE if a slice is too large for a task
                                                                ─▶ the round is recorded

A large slice is split: several tasks of the same job decode its files and write them, and a second job commits the
files that they wrote (``engine/slice/part``). If a table's source changed, the lake table is altered, is re-read
concurrently with rounds, or is paused (``engine/round/schema_changes``); the other tables are not delayed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cdc_core import failpoints
from cdc_core.engine.backfill.task import LandOrder, LandOutcome, LandTask
from cdc_core.engine.options import EngineOptions
from cdc_core.engine.reading.batch import Batch
from cdc_core.engine.reading.tables import TableRegistry
from cdc_core.engine.reports import MergeReport, QuarantineReport, RoundReport
from cdc_core.engine.round.expiry import Expiry
from cdc_core.engine.round.failures import note_failure
from cdc_core.engine.round.outcomes import cpu_parts, has_rest, merge_report
from cdc_core.engine.round.record import Cuts
from cdc_core.engine.round.references import References
from cdc_core.engine.round.renames import note_names
from cdc_core.engine.round.reread_limit import RereadLimit, is_counted, remedy_then_replay
from cdc_core.engine.round.schema_changes import Shapes, same_columns, same_shape
from cdc_core.engine.round.table_state import MergeStates, first_lsn
from cdc_core.engine.round.trouble import trouble_of
from cdc_core.engine.round.validations import Validations
from cdc_core.engine.run_folder import RunFolder
from cdc_core.engine.slice.checks import TableChecks
from cdc_core.engine.slice.constraints import ConstraintsSeen
from cdc_core.engine.slice.order import Replay, SliceOrder, SliceOutcome
from cdc_core.engine.slice.part import PartOrder, SlicePart, cut, joined, large_among, lost
from cdc_core.engine.slice.task import SliceTask
from cdc_core.engine.slice.write import LakeWriter
from cdc_core.errors import CdcError, TransientError
from cdc_core.lake.epochs import epoch_of
from cdc_core.lake.options import LakeOptions, MergeEngine
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import ChangelogPosition
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.stores.changelog import Reached
from cdc_core.lake.stores.rounds import RoundLog
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.snapshot.reread import Reread, Rereads
from cdc_core.spark.run_tasks import balanced, parallelism, run_tasks

_log = logging.getLogger(__name__)

_POLL_SECONDS = 5.0
# A table that changes repeatedly while it is read can be read once the changes stop.
_REREAD_TRIES = 20
# Fixed cost of a slice (open, commit, check), expressed as a number of rows.
_SLICE_ROWS = 2_000


@dataclass(frozen=True, slots=True)
class SourceWatch:
    """State for following changes without events: the shapes, tables being re-read, and the server's end of WAL."""

    shapes: Shapes
    rereads: Rereads
    wal_lsn: Callable[[], int]


class LakeSink:
    """A ``stream.Sink`` over Delta tables. Only one process may use it at a time.

    ``records_rounds``: each round that it applies ends at a consistent cut of all tables, which is recorded.
    """

    def __init__(
        self,
        spark: Callable[[], Any],
        paths: LakePaths,
        slot: str,
        plan: TypingPlan,
        registry: TableRegistry,
        checks: TableChecks,
        watch: SourceWatch,
        options: LakeOptions,
        engine: EngineOptions,
        folder: RunFolder,
        *,
        records_rounds: bool = True,
        docs_path: str = "",
        references: References | None = None,
    ) -> None:
        self._spark = spark
        self._paths = paths
        self._slot = slot
        self._registry = registry
        self._watch = watch
        self._references = references
        self._options = options
        self._engine = engine
        self._writer = LakeWriter.of(options, folder.path, folder.owner)
        self._task = SliceTask(folder.owner.run, slot, paths, plan, checks, self._writer)
        self._merge_states = MergeStates(paths, slot, options, watch.shapes)
        self._expiry = Expiry(paths, slot, self._merge_states, options.changelog_retention_days)
        self._checked_at = float("-inf")
        rounds = RoundLog(paths.rounds, options.lake_history_minutes, epoch_of(slot))
        self._cuts = Cuts(rounds, self._merge_states) if records_rounds else None
        self._validations = Validations(docs_path)
        self._reread_tries: dict[TableId, int] = {}
        self._reread_limit = RereadLimit()
        self._has_rest = False
        self._constraints = ConstraintsSeen(watch.wal_lsn)

    def positions(self, tables: Iterable[TableId]) -> dict[TableId, ChangelogPosition]:
        """Return the position of each table's changelog; the reader skips rows up to it that the slot sends again."""
        self._merge_states.open(tables)
        return {table: s.changelog for table, s in self._merge_states if s.changelog is not None}

    def apply(
        self,
        batch: Batch | None,
        to_lsn: Lsn,
        on_durable: Callable[[], None],
        replays: Mapping[TableId, Replay] | None = None,
    ) -> RoundReport:
        """Append the batch, then merge every table's complete transactions up to ``to_lsn``.

        ``on_durable`` is called once every row of the batch is in its changelog. A table that cannot be merged is
        listed in the report and its changes stay in the changelog; an append that fails raises. ``replays`` are tables
        whose quarantined changes are to be replayed.
        """
        started = time.monotonic()
        self.note_renamed()
        tried = replays or {}
        orders = self._replaying(self._orders(batch, to_lsn), to_lsn, tried)
        outcomes = self._run_orders(orders)
        self._note_appends(batch, outcomes)
        on_durable()
        outcomes = self._evolve(orders, outcomes)
        self._merge_staged(orders, outcomes)
        self._enable_features(orders, outcomes)
        if self._references is not None:
            self._references.judge(self._spark, self._task, self._merge_states, to_lsn, orders, outcomes)
        self._has_rest = any(has_rest(*one) for one in zip(orders, outcomes, strict=True))
        merges = [merge for one in zip(orders, outcomes, strict=True) if (merge := self._settle(*one)) is not None]
        failed = {table: s.error for table, s in self._merge_states if s.awaits_retry}
        failed |= {outcome.table: str(outcome.error) for outcome in outcomes if outcome.error is not None}
        failed |= {table: s.shape.paused.reason for table, s in self._merge_states if s.shape.paused is not None}
        self._record(batch, Lsn(max([to_lsn, *(o.to_lsn or 0 for o in orders if o.table.id in tried)])))
        seconds = time.monotonic() - started
        again = {o.table: QuarantineReport(o.waiting or 0, o.replayed, o.dropped) for o in outcomes if o.table in tried}
        return RoundReport(to_lsn, tuple(merges), failed, seconds=seconds, parts=cpu_parts(outcomes), replays=again)

    def has_backlog(self, to_lsn: Lsn) -> bool:
        """Whether some changelog contains transactions, complete at ``to_lsn``, that are not in its lake table.

        A table whose merge failed is included again after some seconds; one that is paused or being re-read is not.
        """
        if any(self._merge_states.is_due(table, to_lsn) for table, _ in self._merge_states):
            return True
        return self._references is not None and self._references.is_due(self._merge_states, to_lsn)

    @property
    def is_busy(self) -> bool:
        """Whether a table is being re-read or cannot be merged before the stream reaches an LSN, or a slice was partly
        merged.
        """
        return (
            self._has_rest
            or self._watch.shapes.is_poll_due
            or self._watch.rereads.are_under_way
            or any(s.shape.is_on_its_way or s.is_waiting(self._merge_states.passed) for _, s in self._merge_states)
        )

    def between_rounds(self, passed: int, needed: Mapping[TableId, int] | None = None) -> None:
        """Do maintenance outside rounds: tables changed in the source, tables re-read, changes past their retention.

        ``passed`` is the LSN up to which everything received from the server is processed, ``needed`` as in ``Expiry``.
        Called often.
        """
        self._merge_states.passed = passed
        for ended in self._watch.rereads.finished():
            self._note_reread(ended, passed)
        self.note_renamed()
        if self._watch.shapes.is_poll_due or time.monotonic() - self._checked_at >= _POLL_SECONDS:
            self._checked_at = time.monotonic()
            self._watch.shapes.poll(self._watch.wal_lsn)
        self._watch.shapes.settle(passed)
        for table, merge_state in self._merge_states:
            shape, shapes = merge_state.shape, self._watch.shapes
            is_wanted = shape.reread is not None and shape.paused is None and not merge_state.has_failed
            if is_wanted and table not in self._watch.rereads and shapes.can_be_read(table):
                self._watch.rereads.request(table, self._watch.shapes.reserve(table))
        self._expiry.between_rounds(needed)
        if self._cuts is not None:
            self._cuts.between_rounds(passed)

    def resume(self, table: TableId, lsn: int) -> bool:
        """Resume a paused table with the next round; False if it must be re-read first.

        Raises TableError if the cause of the pause still exists.
        """
        if not self._watch.shapes.can_go_on(table):
            return False
        self._watch.shapes.resume(table, lsn)
        return True

    def reopen(self, table: TableId) -> None:
        """Reload the table's merge state after it was re-read."""
        self._merge_states.reload(table)

    def is_current(self, table: TableSchema) -> bool:
        """Whether the lake table has the shape of this description of its source and is merged by rounds.

        For a table that the lake does not know, the description becomes its first shape.
        """
        state = self._merge_states.of(table.id).shape
        if state.holds_back or table.id in self._watch.rereads:
            return False
        known = self._watch.shapes.adopt(table, self._watch.wal_lsn) if state.shape is None else state.shape
        is_settled = state.waiting is None and state.in_force == known.number
        return is_settled and same_shape(known.table, table) and same_columns(known.table, table)

    def order_to_land(self, table: TableId, reached: int, passed: int) -> SliceOrder | None:
        """Return the order for a task that writes incremental-snapshot rows, once changes up to ``reached`` are merged.

        None before that. ``to_lsn`` of the order is the LSN up to which the table is merged; ``passed`` as for
        ``between_rounds``.
        """
        merge_state = self._merge_states.of(table)
        # If the changelog has no unmerged change, the table contains everything that the stream has delivered.
        at = max(passed if merge_state.backlog is None else 0, merge_state.merged or 0)
        if at < reached or self._merge_states.holds_back(table, passed):
            return None
        order = self._order(table, self._known(table), at)
        return replace(order, views=self._watch.shapes.views(table), visible=None, has_backlog=False)

    def land(self, order: LandOrder) -> LandOutcome:
        """Write rows of an incremental snapshot to the lake table in one commit; errors are returned in the outcome."""
        wanted, path = order.order, self._paths.lake(order.order.table.id)
        work, spark = LandTask(self._task), self._spark()
        try:
            (outcome,) = run_tasks(spark, [[order]], work, f"writing rows of {wanted.table.id}")
            if outcome.evolves:
                self._writer.evolve_with_spark(spark, path, self._slot, wanted, self._task.plan)
                (outcome,) = run_tasks(spark, [[order]], work, f"writing rows of {wanted.table.id}")
            if outcome.staged is not None:
                outcome.applied = self._writer.land_with_spark(spark, path, self._slot, wanted, outcome.staged)
        except CdcError as error:
            outcome = LandOutcome(wanted.table.id, error=error)
        merge_state = self._merge_states.of(wanted.table.id)
        if isinstance(outcome.error, TransientError):
            self._merge_states.reload(wanted.table.id)
        elif outcome.error is None:
            merge_state.merged = max(merge_state.merged or 0, wanted.to_lsn or 0)
            if outcome.applied is not None:
                # Spark's MERGE does not change the LSN stored in the table.
                merge_state.shown = merge_state.shown if outcome.staged is not None else wanted.to_lsn
                merge_state.version, merge_state.checked_at = outcome.applied.version, time.monotonic()
        return outcome

    def reserve(self, tables: Sequence[TableId]) -> dict[TableId, int] | None:
        """Reserve numbers for the shapes that these tables get when they are read.

        Returns None while one of them is being read.
        """
        if any(table in self._watch.rereads for table in tables):
            return None
        self._merge_states.open(table for table in tables if not self._merge_states.knows(table))
        return {table: self._watch.shapes.reserve(table) for table in tables}

    def note_read(self, table: TableId) -> None:
        """Reload the table's merge state after another run read it."""
        self._merge_states.reload(table)

    def close(self) -> None:
        """Wait, for a bounded time, until background work ends: re-reads and validations."""
        self._watch.rereads.close()
        self._validations.close({str(table): self._paths.quarantine(table) for table, _ in self._merge_states})

    def _note_reread(self, ended: Reread, passed: int) -> None:
        """Update a table whose re-read ended. Transient errors are retried; after other errors the table is paused."""
        table, error = ended.table, ended.error
        if error is None:
            self._reread_tries.pop(table, None)
            self._merge_states.reload(table)
            return
        self._reread_tries[table] = self._reread_tries.get(table, 0) + is_counted(error)
        if isinstance(error, TransientError) and self._reread_tries[table] < _REREAD_TRIES:
            _log.warning("%s could not be re-read; retrying later: %s", table, error.message)
            merge_state = self._merge_states.of(table)
            merge_state.failed_at, merge_state.error = time.monotonic(), str(error)
            return
        self._watch.shapes.pause(table, error.message, remedy_then_replay(error, table), passed)

    def note_renamed(self) -> None:
        """Record re-reads of renamed tables before the slot is confirmed: changes under the new name are not stored."""
        note_names(self._watch.shapes, self._registry.take_names())

    def _orders(self, batch: Batch | None, to_lsn: int) -> list[SliceOrder]:
        """Create one order for each table with rows in the batch or unmerged changes in its changelog."""
        in_batch = {} if batch is None else batch.versions
        orders = []
        if batch is not None:
            # New shapes of a table are decided first, because the decision may pause the table.
            kept = [table for table in in_batch if not self._merge_states.of(table).loses_changes]
            orders = [self._batch_order(batch, table, to_lsn) for table in kept]
        due = [t for t, _ in self._merge_states if t not in in_batch and self._merge_states.is_due(t, to_lsn)]
        return orders + [self._order(table, self._known(table), to_lsn) for table in due]

    def _batch_order(self, batch: Batch, table: TableId, to_lsn: int) -> SliceOrder:
        merge_state, versions, shapes = self._merge_states.of(table), batch.versions[table], self._watch.shapes
        files: list[tuple[int, str]] = []
        for version in versions:
            first = int(version.commits[0][0])
            number = shapes.number(version.table, self._registry.resolved_at(version.table), first, merge_state.token)
            files += [(number, str(path)) for path in version.paths]
        whole = batch.complete_to(table)
        is_whole = (whole is not None and whole <= to_lsn) or merge_state.is_due(to_lsn)
        goes_on = is_whole and not self._merge_states.holds_back(table, to_lsn)
        order = self._order(table, self._known(table), to_lsn if goes_on else None, {number for number, _ in files})
        plain = not (order.has_backlog or order.visible or order.steps or order.views or order.waiting)
        return replace(
            order,
            files=tuple(files),
            rows=sum(version.rows for version in versions),
            reached=Reached(whole, batch.open_at(table)),
            only_inserts=plain and batch.only_inserts(table),
        )

    def _order(self, table: TableId, known: TableSchema, cut: int | None, numbers: Iterable[int] = ()) -> SliceOrder:
        merge_state = self._merge_states.of(table)
        state, overlap = merge_state.shape, self._merge_states.overlap(table)
        number = 0 if state.shape is None else state.shape.number
        is_mixed = merge_state.backlog is not None or any(each != number for each in numbers) or bool(state.pending)
        is_mixed |= merge_state.waiting
        return SliceOrder(
            known,
            to_lsn=cut,
            position=merge_state.changelog,
            has_backlog=merge_state.backlog is not None,
            token=merge_state.token or 0,
            merged=merge_state.merged,
            visible=None if overlap is None else overlap.visible,
            resumed=None if overlap is None or merge_state.merged is not None else overlap.since,
            floor=int(first_lsn(overlap)),
            engine=merge_state.engine,
            shape=number,
            views=self._watch.shapes.views(table) if is_mixed and cut is not None else {},
            steps=state.pending,
            since={} if cut is None else self._constraints.since(known),
            waiting=merge_state.waiting,
        )

    def _replaying(self, orders: list[SliceOrder], to_lsn: int, replays: Mapping[TableId, Replay]) -> list[SliceOrder]:
        """Return the orders including those of the tables to be replayed."""
        given = {order.table.id: order for order in orders}
        for table, replay in replays.items():
            merge_state = self._merge_states.of(table)
            if merge_state.shape.holds_back:
                continue
            # The LSN up to which the lake table is merged is the start of a commit record, and no other transaction
            # commits within the bytes of that record.
            cut = max(to_lsn, (merge_state.merged or 0) + 1)
            order = given.get(table) or self._order(table, self._known(table), cut)
            given[table] = replace(order, waiting=True, replay=replay, only_inserts=False)
        return list(given.values())

    def _known(self, table: TableId) -> TableSchema:
        shape = self._merge_states.of(table).shape.shape
        return self._registry.current(table) if shape is None else shape.table

    def _run_orders(self, orders: Sequence[SliceOrder]) -> list[SliceOutcome]:
        if not orders:
            return []
        spark = self._spark()
        groups = 2 * parallelism(spark)
        large = large_among(orders, self._engine.slice_split_rows, self._writer.part_max_bytes)
        small = [order for order in orders if all(order is not each for each in large)]
        parts = [part for order in large for part in cut(order, parallelism(spark))]
        items: list[SliceOrder | PartOrder] = [*parts, *small]
        todo = balanced(items, lambda item: item.rows + _SLICE_ROWS, groups)
        # balanced() reorders the work by weight, so results are matched by table, not by position.
        found = run_tasks(spark, todo, SlicePart(self._task), "merging changes into the lake")
        done = {outcome.table: outcome for outcome in found if isinstance(outcome, SliceOutcome)}
        if large:
            done |= {each.table: each for order in large if (each := lost(order, found)) is not None}
            second = [[joined(order, found)] for order in large if order.table.id not in done]
            done |= {outcome.table: outcome for outcome in run_tasks(spark, second, self._task, "committing changes")}
        return [done[order.table.id] for order in orders]

    def _note_appends(self, batch: Batch | None, outcomes: Sequence[SliceOutcome]) -> None:
        for outcome in outcomes:
            if outcome.lost is not None:
                # Stored before the slot is confirmed: a re-read replaces the changes that are not in the changelog.
                self._merge_states.note_trouble(outcome.table, trouble_of(outcome.lost, outcome.table, self._paths))
        for table in batch.versions if batch is not None else ():
            assert batch is not None
            if self._merge_states.of(table).loses_changes:
                continue
            last = batch.last_commit(table)
            merge_state = self._merge_states.of(table)
            merge_state.backlog = last
            merge_state.changelog = ChangelogPosition(*(batch.open_at(table) or (last,)))
            merge_state.whole = max((w for w in (merge_state.whole, batch.complete_to(table)) if w), default=None)
        failpoints.hit(failpoints.BEFORE_CONFIRM)

    def _evolve(self, orders: Sequence[SliceOrder], outcomes: Sequence[SliceOutcome]) -> list[SliceOutcome]:
        """Change tables with Spark whose new shape a task cannot apply, then merge the changes that need that shape."""
        found, again = {outcome.table: outcome for outcome in outcomes}, []
        for order in orders:
            outcome = found[order.table.id]
            if not outcome.evolves:
                continue
            try:
                path = self._paths.lake(order.table.id)
                self._writer.evolve_with_spark(self._spark(), path, self._slot, order, self._task.plan)
            except CdcError as error:
                outcome.error = error
                continue
            # The rows that the first attempt appended are in the changelog now.
            waits = order.has_backlog or bool(order.files or order.written)
            again.append(replace(order, files=(), written=(), arrived=(), rows=0, has_backlog=waits))
        for done in self._run_orders(again):
            first = found[done.table]
            found[done.table] = replace(done, appended=first.appended, changelog_files=first.changelog_files)
        return [found[order.table.id] for order in orders]

    def _enable_features(self, orders: Sequence[SliceOrder], outcomes: Sequence[SliceOutcome]) -> None:
        for order, outcome in zip(orders, outcomes, strict=True):
            if outcome.lacks_features and outcome.error is None:
                try:
                    self._writer.enable_with_spark(self._spark(), self._paths.lake(order.table.id), order)
                except CdcError as error:
                    outcome.error = error

    def _merge_staged(self, orders: Sequence[SliceOrder], outcomes: Sequence[SliceOutcome]) -> None:
        """Run Spark's MERGE for the slices that are too large for a task."""
        for order, outcome in zip(orders, outcomes, strict=True):
            if outcome.staged is None or outcome.error is not None:
                continue
            self._merge_states.of(order.table.id).engine = MergeEngine.SPARK
            started = time.monotonic()
            failpoints.hit(failpoints.BEFORE_SPARK_MERGE)
            try:
                outcome.applied = self._writer.merge_with_spark(
                    self._spark(), self._paths.lake(order.table.id), self._slot, order, outcome.staged
                )
                outcome.merged = outcome.lake_lsn = outcome.staged.to_lsn
                outcome.lake_version = outcome.applied.version
            except CdcError as error:
                outcome.error = error
            failpoints.hit(failpoints.AFTER_SPARK_MERGE)
            outcome.seconds["spark merge"] = time.monotonic() - started

    def _settle(self, order: SliceOrder, outcome: SliceOutcome) -> MergeReport | None:
        """Update the table's merge state from the outcome; returns its report, None if nothing was merged."""
        table, merge_state = order.table.id, self._merge_states.of(order.table.id)
        if outcome.error is not None:
            note_failure(table, outcome.error, self._merge_states, self._watch.shapes, self._paths, self._reread_limit)
            return None
        if outcome.lost is not None:
            return None
        if order.to_lsn is None:
            return None
        merge_state.failed_at = None
        merge_state.merged = outcome.merged
        if outcome.waiting is not None:
            # If Spark still has to merge a part, the state of the quarantine table is determined again in the next
            # round.
            merge_state.waiting = bool(outcome.waiting)
        if outcome.lake_version is not None:
            merge_state.version, merge_state.shown = outcome.lake_version, outcome.lake_lsn
            merge_state.identity = outcome.lake_id
            merge_state.checked_at = time.monotonic()
        merge_state.shape.in_force = max(merge_state.shape.in_force, order.shape)
        if merge_state.backlog is not None and outcome.merged is not None and merge_state.backlog <= outcome.merged:
            merge_state.backlog = None
        outcome.check = self._validations.with_verdict(outcome.check)
        return None if outcome.applied is None else merge_report(order, outcome, outcome.applied)

    def _record(self, batch: Batch | None, to_lsn: Lsn) -> None:
        failpoints.hit(failpoints.BEFORE_ROUND_RECORD)
        if self._cuts is not None:
            if batch is not None and batch.complete_lsn is not None:
                self._cuts.note_commit(batch.complete_lsn, batch.last_commit_ts_us)
            self._cuts.record(to_lsn)
