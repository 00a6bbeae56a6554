"""The lake as the engine sees it: a round is one Spark job over all tables with changes, and a record of the cut.

    batch ─▶ orders, a table each ─▶ one job (engine/slice_task) ─▶ durable: the slot may be told
                                                                 ─▶ Spark's MERGE where a slice is too large for a task
                                                                 ─▶ the round is written down

A table whose slice is large is cut: its files are decoded and written by several tasks of the same job, and a second
job commits what they wrote (``engine/slice_part``). A table whose source changed takes the steps that its change asks
for, is read again beside the rounds, or pauses (``engine/shapes``); the others never wait for it.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from cdc_core import failpoints
from cdc_core.clock import now_us
from cdc_core.engine.batch import Batch, Position
from cdc_core.engine.checks import TableChecks
from cdc_core.engine.options import EngineOptions
from cdc_core.engine.reports import CheckReport, MergeReport, RoundReport
from cdc_core.engine.reread import Reread, Rereads
from cdc_core.engine.shapes import Shapes
from cdc_core.engine.slice_order import Applied, SliceOrder, SliceOutcome
from cdc_core.engine.slice_part import PartOrder, SlicePart, cut, joined
from cdc_core.engine.slice_task import SliceTask
from cdc_core.engine.standing import Standing, Standings, first_lsn
from cdc_core.engine.table_writer import LakeWriter
from cdc_core.engine.tables import TableBook
from cdc_core.engine.typing_plan import TypingPlan
from cdc_core.errors import CdcError, RereadNeededError, TransientError
from cdc_core.lsn import Lsn
from cdc_core.quality.validator import SummaryValidator
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.sink.delta.append import Reached
from cdc_core.sink.delta.paths import LakePaths
from cdc_core.sink.delta.retention import DAY_US, expire_changes
from cdc_core.sink.delta.rounds import record_round
from cdc_core.sink.delta.table import DeltaTable
from cdc_core.sink.options import MergeEngine, SinkOptions
from cdc_core.spark.run_tasks import balanced, parallelism, run_tasks

_log = logging.getLogger(__name__)

_VALIDATION_SECONDS = 30.0
_LOOK_SECONDS = 5.0
# A table that is changed again and again while it is read comes to rest some time.
_REREAD_TRIES = 20
# What a slice costs beside its rows, in rows: opening, committing, checking.
_SLICE_ROWS = 2_000


@dataclass(frozen=True, slots=True)
class SourceWatch:
    """What tells of changes that no event carries: the shapes, tables that are read again, and the server's WAL end."""

    shapes: Shapes
    rereads: Rereads
    wal_lsn: Callable[[], int]


class LakeSink:
    """A ``stream.Sink`` over Delta tables. One process at a time."""

    def __init__(
        self,
        spark: Callable[[], Any],
        paths: LakePaths,
        slot: str,
        plan: TypingPlan,
        book: TableBook,
        checks: TableChecks,
        watch: SourceWatch,
        options: SinkOptions,
        engine: EngineOptions,
        staging: Path,
    ) -> None:
        self._spark = spark
        self._paths = paths
        self._slot = slot
        self._book = book
        self._watch = watch
        self._options = options
        self._engine = engine
        self._writer = LakeWriter.of(options, staging)
        self._task = SliceTask(uuid.uuid4().hex, slot, paths, plan, checks, self._writer)
        self._standings = Standings(paths, slot, options, watch.shapes)
        self._expired_on: int | None = None
        self._looked_at = float("-inf")
        self._rounds: DeltaTable | None = None
        self._validator = SummaryValidator()
        self._reread_tries: dict[TableId, int] = {}
        self._has_rest = False

    def positions(self, tables: Iterable[TableId]) -> dict[TableId, Position]:
        """What each table's changelog holds already: the reader drops it when the slot sends it again."""
        self._standings.open(tables)
        return {table: s.changelog for table, s in self._standings if s.changelog is not None}

    def apply(self, batch: Batch | None, to_lsn: Lsn, on_durable: Callable[[], None]) -> RoundReport:
        """Append the batch, then bring every table with whole transactions up to ``to_lsn`` to it.

        ``on_durable`` is called once every row of the batch is in its changelog. A table that cannot follow is named in
        the report, its changes wait in the changelog; an append that fails raises.
        """
        started = time.monotonic()
        self._note_strays()
        orders = self._orders(batch, to_lsn)
        outcomes = self._run_orders(orders)
        self._note_appends(batch)
        on_durable()
        outcomes = self._evolve(orders, outcomes)
        self._merge_staged(orders, outcomes)
        self._enable_features(orders, outcomes)
        self._has_rest = any(_has_rest(*one) for one in zip(orders, outcomes, strict=True))
        merges = [merge for one in zip(orders, outcomes, strict=True) if (merge := self._settle(*one)) is not None]
        failed = {table: s.error for table, s in self._standings if s.stands_still}
        failed |= {outcome.table: str(outcome.error) for outcome in outcomes if outcome.error is not None}
        failed |= {table: s.shape.paused.reason for table, s in self._standings if s.shape.paused is not None}
        self._record(to_lsn, merges)
        seconds = time.monotonic() - started
        return RoundReport(to_lsn, tuple(merges), failed, seconds=seconds, parts=_parts(outcomes))

    def has_backlog(self, to_lsn: Lsn) -> bool:
        """Whether some changelog is ahead of its lake table with transactions that are whole at ``to_lsn``.

        A table that could not follow counts again after some seconds, one that is paused or read again does not.
        """
        return any(standing.is_due(to_lsn) for _, standing in self._standings)

    @property
    def is_busy(self) -> bool:
        """Whether a table is being read again, a change of a table waits for its place in the stream, or a slice was
        merged in part.
        """
        return (
            self._has_rest
            or self._watch.rereads.are_under_way
            or any(s.shape.is_on_its_way for _, s in self._standings)
        )

    def tend(self, passed: int) -> None:
        """Look after what no batch brings: changed tables, tables read again, changes past their retention.

        ``passed`` is the LSN up to which everything that the server had for us is done. Asked often; looks seldom.
        """
        for ended in self._watch.rereads.finished():
            self._note_reread(ended, passed)
        self._note_strays()
        if time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = time.monotonic()
            self._watch.shapes.poll(self._watch.wal_lsn)
        self._watch.shapes.settle(passed)
        for table, standing in self._standings:
            if standing.shape.reread is not None and not standing.has_failed and table not in self._watch.rereads:
                self._watch.rereads.request(table, self._watch.shapes.reserve(table))
        self._expire()

    def resume(self, table: TableId, lsn: int) -> bool:
        """Let a paused table go on with the next round; False where it must be read again first.

        Raises TableError where what it was paused for is still so.
        """
        if not self._watch.shapes.can_go_on(table):
            return False
        self._watch.shapes.resume(table, lsn)
        return True

    def reopen(self, table: TableId) -> None:
        """Ask for the table's standing anew: it was read again."""
        self._standings.again(table)

    def close(self) -> None:
        """Let what goes on beside the rounds end: tables being read, validations; for a bounded time."""
        self._watch.rereads.close()
        self._validator.close(_VALIDATION_SECONDS)

    def _note_reread(self, ended: Reread, passed: int) -> None:
        """Go on with a table that was read again; one that could not be is tried again where that may help."""
        table, error = ended.table, ended.error
        if error is None:
            self._reread_tries.pop(table, None)
            self._standings.again(table)
            return
        self._reread_tries[table] = self._reread_tries.get(table, 0) + 1
        if isinstance(error, TransientError) and self._reread_tries[table] < _REREAD_TRIES:
            _log.warning("%s could not be read again and is tried later: %s", table, error.message)
            standing = self._standings.of(table)
            standing.failed_at, standing.error = time.monotonic(), str(error)
            return
        remedy = f"Mend the cause and run wal2lake replay with {table}."
        self._watch.shapes.pause(table, error.message, error.remedy or remedy, passed)

    def _note_strays(self) -> None:
        """Changes under a name that is not captured are nowhere, so this is written down before the slot moves on."""
        for table in self._book.take_strayed():
            self._watch.shapes.want_reread(table, "it was changed while it bore a name that is not captured")

    def _expire(self) -> None:
        """Take merged changes out of the changelogs that are older than wal2lake.changelog.retention.days.

        Once a day and table. A table where another writer is in the way keeps its rows until the next run.
        """
        now, days = now_us(), self._options.changelog_retention_days
        today = now // DAY_US
        if not days or self._expired_on == today:
            return
        self._expired_on = today
        for table, standing in self._standings:
            try:
                expire_changes(self._paths.changelog(table), self._slot, table, standing.merged, now, days)
            except CdcError as error:
                _log.warning("Old changes of %s stay for now. %s", table, error.message)

    def _orders(self, batch: Batch | None, to_lsn: int) -> list[SliceOrder]:
        """One order a table that has something in the batch, or waiting in its changelog."""
        in_batch = {} if batch is None else batch.versions
        orders = []
        if batch is not None:
            # What is new of a table is decided first, for it may hold the table back.
            orders = [self._batch_order(batch, table, to_lsn) for table in in_batch]
        due = [table for table, s in self._standings if table not in in_batch and s.is_due(to_lsn)]
        return orders + [self._order(table, self._known(table), to_lsn) for table in due]

    def _batch_order(self, batch: Batch, table: TableId, to_lsn: int) -> SliceOrder:
        standing, versions, shapes = self._standings.of(table), batch.versions[table], self._watch.shapes
        files: list[tuple[int, str]] = []
        for version in versions:
            first = int(version.commits[0][0])
            number = shapes.number(version.table, self._book.sighted(version.table), first, standing.token)
            files += [(number, str(path)) for path in version.paths]
        whole = batch.complete_to(table)
        is_whole = (whole is not None and whole <= to_lsn) or standing.is_due(to_lsn)
        goes_on = is_whole and not standing.has_failed and not standing.shape.holds_back
        order = self._order(table, self._known(table), to_lsn if goes_on else None, {number for number, _ in files})
        plain = not (order.has_backlog or order.visible or order.steps or order.views)
        return replace(
            order,
            files=tuple(files),
            rows=sum(version.rows for version in versions),
            reached=Reached(whole, batch.open_at(table)),
            only_inserts=plain and batch.only_inserts(table),
        )

    def _order(self, table: TableId, known: TableSchema, cut: int | None, numbers: Iterable[int] = ()) -> SliceOrder:
        standing = self._standings.of(table)
        state, overlap = standing.shape, self._standings.overlap(table)
        number = 0 if state.shape is None else state.shape.number
        is_mixed = standing.backlog is not None or any(each != number for each in numbers) or bool(state.pending)
        return SliceOrder(
            known,
            to_lsn=cut,
            position=None if standing.changelog is None else astuple(standing.changelog),
            has_backlog=standing.backlog is not None,
            token=standing.token or 0,
            merged=standing.merged,
            visible=None if overlap is None else overlap.visible,
            floor=int(first_lsn(overlap)),
            engine=standing.engine,
            shape=number,
            views=self._watch.shapes.views(table) if is_mixed and cut is not None else {},
            steps=state.pending,
        )

    def _known(self, table: TableId) -> TableSchema:
        shape = self._standings.of(table).shape.shape
        return self._book.current(table) if shape is None else shape.table

    def _run_orders(self, orders: Sequence[SliceOrder]) -> list[SliceOutcome]:
        if not orders:
            return []
        spark = self._spark()
        groups = 2 * parallelism(spark)
        large = [order for order in orders if order.rows > self._engine.slice_split_rows]
        small = [order for order in orders if order.rows <= self._engine.slice_split_rows]
        parts = [part for order in large for part in cut(order, parallelism(spark))]
        items: list[SliceOrder | PartOrder] = [*parts, *small]
        todo = balanced(items, lambda item: item.rows + _SLICE_ROWS, groups)
        # balanced() takes the work apart by weight, so results are told by table, not by place.
        found = run_tasks(spark, todo, SlicePart(self._task), "bringing changes to the lake")
        done = {outcome.table: outcome for outcome in found if isinstance(outcome, SliceOutcome)}
        if large:
            second = [[joined(order, found)] for order in large]
            done |= {outcome.table: outcome for outcome in run_tasks(spark, second, self._task, "committing changes")}
        return [done[order.table.id] for order in orders]

    def _note_appends(self, batch: Batch | None) -> None:
        for table in batch.versions if batch is not None else ():
            assert batch is not None
            last = batch.last_commit(table)
            standing = self._standings.of(table)
            standing.backlog = last
            standing.changelog = Position(*(batch.open_at(table) or (last,)))
        failpoints.hit(failpoints.BEFORE_CONFIRM)

    def _evolve(self, orders: Sequence[SliceOrder], outcomes: Sequence[SliceOutcome]) -> list[SliceOutcome]:
        """Let Spark bring the tables to their shapes that tasks cannot, and merge what waits for that."""
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
            # What the first attempt appended is in the changelog now.
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
        """Spark's MERGE for the slices that are too large for a task."""
        for order, outcome in zip(orders, outcomes, strict=True):
            if outcome.staged is None or outcome.error is not None:
                continue
            self._standings.of(order.table.id).engine = MergeEngine.SPARK
            started = time.monotonic()
            failpoints.hit(failpoints.BEFORE_SPARK_MERGE)
            try:
                outcome.applied = self._writer.merge_with_spark(
                    self._spark(), self._paths.lake(order.table.id), self._slot, order, outcome.staged
                )
                outcome.merged = outcome.staged.to_lsn
            except CdcError as error:
                outcome.error = error
            failpoints.hit(failpoints.AFTER_SPARK_MERGE)
            outcome.seconds["spark merge"] = time.monotonic() - started

    def _settle(self, order: SliceOrder, outcome: SliceOutcome) -> MergeReport | None:
        """Note where a table stands now."""
        table, standing = order.table.id, self._standings.of(order.table.id)
        if outcome.error is not None:
            self._note_failure(table, standing, outcome.error)
            return None
        if order.to_lsn is None:
            return None
        standing.failed_at = None
        standing.merged = outcome.merged
        standing.shape.in_force = max(standing.shape.in_force, order.shape)
        if standing.backlog is not None and outcome.merged is not None and standing.backlog <= outcome.merged:
            standing.backlog = None
        outcome.check = self._validated(outcome.check)
        return None if outcome.applied is None else _merge_report(order, outcome, outcome.applied)

    def _note_failure(self, table: TableId, standing: Standing, error: CdcError) -> None:
        standing.failed_at, standing.error = time.monotonic(), str(error)
        if isinstance(error, RereadNeededError):
            self._watch.shapes.want_reread(table, error.message)
        elif isinstance(error, TransientError):
            # What is known of the table may be out of date: another writer was at work on it.
            self._standings.again(table)

    def _record(self, to_lsn: Lsn, merges: Sequence[MergeReport]) -> None:
        failpoints.hit(failpoints.BEFORE_ROUND_RECORD)
        if merges:
            versions = {merge.table: merge.lake_version for merge in merges}
            hours = self._options.lake_history_minutes
            self._rounds = record_round(self._paths.rounds, to_lsn, versions, hours, self._rounds)

    def _validated(self, check: CheckReport | None) -> CheckReport | None:
        """Hand a summary to the validator; the report, with what validations have said of the table so far."""
        if check is None or check.summary is None:
            return check
        self._validator.submit(str(check.table), check.rules, check.summary)
        verdict = self._validator.verdict(str(check.table))
        return check if verdict is None else replace(check, validation_json=verdict.shown.json)


def _has_rest(order: SliceOrder, outcome: SliceOutcome) -> bool:
    """Whether Spark merged the first part of a slice whose key changed within: the next round merges the rest."""
    if outcome.staged is None or outcome.error is not None or order.to_lsn is None:
        return False
    return outcome.staged.to_lsn < order.to_lsn


def _merge_report(order: SliceOrder, outcome: SliceOutcome, applied: Applied) -> MergeReport:
    return MergeReport(
        order.table.id,
        Lsn(outcome.merged or 0),
        applied.version,
        applied.events,
        applied.inserted,
        applied.updated,
        applied.deleted,
        sum(outcome.seconds.values()),
        outcome.check,
    )


def _parts(outcomes: Sequence[SliceOutcome]) -> dict[str, float]:
    """CPU-seconds of the round's tasks by part."""
    found: dict[str, float] = {}
    for outcome in outcomes:
        for part, seconds in outcome.cpu_seconds.items():
            found[part] = found.get(part, 0.0) + seconds
    return found
