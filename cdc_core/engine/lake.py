"""The lake as the engine sees it: a round is one Spark job over all tables with changes, and a record of the cut.

    batch ─▶ orders, a table each ─▶ one job (engine/slice_task) ─▶ durable: the slot may be told
                                                                 ─▶ Spark's MERGE where a slice is too large for a task
                                                                 ─▶ the round is written down

A table whose slice is large is cut: its files are decoded and written by several tasks of the same job, and a second
job commits what they wrote (``engine/slice_part``).
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

from cdc_core import failpoints
from cdc_core.clock import now_us
from cdc_core.engine.batch import Batch, Position
from cdc_core.engine.checks import TableChecks
from cdc_core.engine.options import EngineOptions
from cdc_core.engine.reports import CheckReport, MergeReport, RoundReport
from cdc_core.engine.slice_order import Applied, SliceOrder, SliceOutcome
from cdc_core.engine.slice_part import PartOrder, SlicePart, cut, joined
from cdc_core.engine.slice_task import SliceTask
from cdc_core.engine.table_writer import LakeWriter
from cdc_core.engine.tables import TableBook
from cdc_core.engine.typing_plan import TypingPlan
from cdc_core.errors import CdcError
from cdc_core.lsn import Lsn
from cdc_core.quality.validator import SummaryValidator
from cdc_core.schema.table import TableId
from cdc_core.sink.delta.append import Reached
from cdc_core.sink.delta.paths import LakePaths
from cdc_core.sink.delta.positions import changelog_position, lake_position
from cdc_core.sink.delta.reads import complete_reads
from cdc_core.sink.delta.retention import DAY_US, expire_changes
from cdc_core.sink.delta.rounds import record_round
from cdc_core.sink.delta.snapshot_log import TakenSnapshot, read_snapshots
from cdc_core.sink.delta.table import DeltaTable
from cdc_core.sink.options import MergeEngine, SinkOptions
from cdc_core.spark.run_tasks import balanced, parallelism, run_tasks

_log = logging.getLogger(__name__)

_OPENING_THREADS = 8
_RETRY_SECONDS = 10.0
_VALIDATION_SECONDS = 30.0
# What a slice costs beside its rows, in rows: opening, committing, checking.
_SLICE_ROWS = 2_000


@dataclass(slots=True)
class _Standing:
    """Where one table stands. ``backlog`` is the newest commit in its changelog that the lake table may lack.

    It may be the commit of a transaction of which only a part has come: it is merged once the stream is past it.
    """

    changelog: Position | None = None
    token: int | None = None
    merged: int | None = None
    backlog: int | None = None
    failed_at: float | None = None
    engine: MergeEngine = MergeEngine.AUTO
    error: str | None = field(default=None)


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
        options: SinkOptions,
        engine: EngineOptions,
        staging: Path,
    ) -> None:
        self._spark = spark
        self._paths = paths
        self._slot = slot
        self._book = book
        self._options = options
        self._engine = engine
        self._run = uuid.uuid4().hex
        writer = LakeWriter.of(options, staging)
        self._task = SliceTask(self._run, slot, paths, plan, checks, writer)
        self._writer = writer
        self._expired_on: int | None = None
        self._standing: dict[TableId, _Standing] = {}
        self._snapshots = read_snapshots(paths.snapshots)
        self._rounds: DeltaTable | None = None
        self._validator = SummaryValidator()

    def positions(self, tables: Iterable[TableId]) -> dict[TableId, Position]:
        """What each table's changelog holds already: the reader drops it when the slot sends it again."""
        wanted = list(tables)
        with ThreadPoolExecutor(_OPENING_THREADS) as pool:
            for table, standing in zip(wanted, pool.map(self._ask, wanted), strict=True):
                self._standing[table] = standing
        return {table: s.changelog for table in wanted if (s := self._standing[table]).changelog is not None}

    def apply(self, batch: Batch | None, to_lsn: Lsn, on_durable: Callable[[], None]) -> RoundReport:
        """Append the batch, then bring every table with whole transactions up to ``to_lsn`` to it.

        ``on_durable`` is called once every row of the batch is in its changelog. A table that cannot follow is named in
        the report, its changes wait in the changelog; an append that fails raises.
        """
        started = time.monotonic()
        orders = self._orders(batch, to_lsn)
        outcomes = self._run_orders(orders)
        self._note_appends(batch)
        on_durable()
        self._merge_staged(orders, outcomes, to_lsn)
        merges, failed = self._settle(orders, outcomes, to_lsn)
        failpoints.hit(failpoints.BEFORE_ROUND_RECORD)
        versions = {merge.table: merge.lake_version for merge in merges}
        self._rounds = (
            record_round(self._paths.rounds, to_lsn, versions, self._options.lake_history_hours, self._rounds)
            if versions
            else self._rounds
        )
        return RoundReport(to_lsn, merges, failed, seconds=time.monotonic() - started, parts=_parts(outcomes))

    def has_backlog(self, to_lsn: Lsn) -> bool:
        """Whether some changelog is ahead of its lake table with transactions that are whole at ``to_lsn``.

        A table that could not follow counts again after some seconds.
        """
        return any(self._is_due(standing, to_lsn) for standing in self._standing.values())

    def expire(self) -> None:
        """Take merged changes out of the changelogs that are older than wal2lake.changelog.retention.days.

        Once a day and table. A table where another writer is in the way keeps its rows until the next run.
        """
        now, days = now_us(), self._options.changelog_retention_days
        today = now // DAY_US
        if not days or self._expired_on == today:
            return
        self._expired_on = today
        for table, standing in list(self._standing.items()):
            try:
                expire_changes(self._paths.changelog(table), self._slot, table, standing.merged, now, days)
            except CdcError as error:
                _log.warning("Old changes of %s stay for now. %s", table, error.message)

    def close(self) -> None:
        """Let Great Expectations validate what waits, for a bounded time."""
        self._validator.close(_VALIDATION_SECONDS)

    def _ask(self, table: TableId) -> _Standing:
        """Where the table stands, asked of its own commits."""
        if self._options.changelog_reads:
            # Before anything is merged, for then the lake no longer shows the snapshot alone.
            complete_reads(
                self._paths.lake(table),
                self._paths.changelog(table),
                self._slot,
                table,
                self._options.lake_history_hours,
            )
        found = changelog_position(DeltaTable.open(self._paths.changelog(table)), self._slot, table)
        lake = lake_position(DeltaTable.open(self._paths.lake(table)), self._slot, table)
        standing = _Standing(token=lake.token, merged=lake.lsn, engine=self._options.merge_engine)
        if found is not None:
            standing.changelog = Position(found.commit_lsn, found.tx_index)
            if lake.lsn is None or lake.lsn < found.commit_lsn:
                standing.backlog = found.commit_lsn
        return standing

    def _stand(self, table: TableId) -> _Standing:
        if table not in self._standing:
            self._standing[table] = self._ask(table)
        return self._standing[table]

    def _is_due(self, standing: _Standing, to_lsn: int) -> bool:
        if standing.backlog is None or standing.backlog > to_lsn:
            return False
        return standing.failed_at is None or time.monotonic() - standing.failed_at >= _RETRY_SECONDS

    def _orders(self, batch: Batch | None, to_lsn: int) -> list[SliceOrder]:
        """One order a table that has something in the batch, or waiting in its changelog."""
        orders = []
        in_batch = {} if batch is None else batch.versions
        waiting = [table for table, s in self._standing.items() if table not in in_batch and self._is_due(s, to_lsn)]
        for table in [*in_batch, *waiting]:
            standing = self._stand(table)
            # The batch's own newest version: the book may be ahead of it.
            known = self._book.current(table) if table not in in_batch else in_batch[table][-1].table
            order = SliceOrder(
                known,
                to_lsn=self._cut(batch, table, standing, to_lsn),
                position=None if standing.changelog is None else astuple(standing.changelog),
                has_backlog=standing.backlog is not None,
                token=standing.token or 0,
                merged=standing.merged,
                visible=self._overlap(table, standing),
                engine=standing.engine,
            )
            if batch is not None and table in in_batch:
                versions = in_batch[table]
                order = replace(
                    order,
                    files=tuple(str(path) for version in versions for path in version.paths),
                    rows=sum(version.rows for version in versions),
                    reached=Reached(batch.complete_to(table), batch.open_at(table)),
                    only_inserts=batch.only_inserts(table) and not order.has_backlog and order.visible is None,
                )
            orders.append(order)
        return orders

    def _cut(self, batch: Batch | None, table: TableId, standing: _Standing, to_lsn: int) -> int | None:
        """The cut for the table; None where none of its transactions is whole by then, or it failed just now."""
        whole = batch.complete_to(table) if batch is not None and table in batch.versions else None
        has_whole = (whole is not None and whole <= to_lsn) or self._is_due(standing, to_lsn)
        failed = standing.failed_at is not None and time.monotonic() - standing.failed_at < _RETRY_SECONDS
        return to_lsn if has_whole and not failed else None

    def _run_orders(self, orders: Sequence[SliceOrder]) -> list[SliceOutcome]:
        if not orders:
            return []
        spark = self._spark()
        groups = 2 * parallelism(spark)
        large = [order for order in orders if order.rows > self._engine.slice_split_rows]
        small = [order for order in orders if order.rows <= self._engine.slice_split_rows]
        parts = [part for order in large for part in cut(order, parallelism(spark))]
        work = SlicePart(self._task)
        items: list[SliceOrder | PartOrder] = [*parts, *small]
        todo = balanced(items, lambda item: item.rows + _SLICE_ROWS, groups)
        # balanced() takes the work apart by weight, so results are told by table, not by place.
        found = run_tasks(spark, todo, work, "bringing changes to the lake")
        done = {outcome.table: outcome for outcome in found if isinstance(outcome, SliceOutcome)}
        if large:
            second = [[joined(order, found)] for order in large]
            done |= {outcome.table: outcome for outcome in run_tasks(spark, second, self._task, "committing changes")}
        return [done[order.table.id] for order in orders]

    def _note_appends(self, batch: Batch | None) -> None:
        for table in batch.versions if batch is not None else ():
            assert batch is not None
            last = batch.last_commit(table)
            standing = self._stand(table)
            standing.backlog = last
            standing.changelog = Position(*(batch.open_at(table) or (last,)))
        failpoints.hit(failpoints.BEFORE_CONFIRM)

    def _merge_staged(self, orders: Sequence[SliceOrder], outcomes: Sequence[SliceOutcome], to_lsn: int) -> None:
        """Spark's MERGE for the slices that are too large for a task."""
        for order, outcome in zip(orders, outcomes, strict=True):
            if outcome.staged is None:
                continue
            self._standing[order.table.id].engine = MergeEngine.SPARK
            started = time.monotonic()
            failpoints.hit(failpoints.BEFORE_SPARK_MERGE)
            try:
                outcome.applied = self._writer.merge_with_spark(
                    self._spark(), self._paths.lake(order.table.id), self._slot, order, outcome.staged
                )
                outcome.merged = to_lsn
            except CdcError as error:
                outcome.error = error
            failpoints.hit(failpoints.AFTER_SPARK_MERGE)
            outcome.seconds["spark merge"] = time.monotonic() - started

    def _settle(
        self, orders: Sequence[SliceOrder], outcomes: Sequence[SliceOutcome], to_lsn: int
    ) -> tuple[tuple[MergeReport, ...], dict[TableId, str]]:
        """Note where each table stands now."""
        merges: list[MergeReport] = []
        failed: dict[TableId, str] = {}
        for order, outcome in zip(orders, outcomes, strict=True):
            standing = self._standing[order.table.id]
            if outcome.error is not None:
                failed[order.table.id] = str(outcome.error)
                standing.failed_at, standing.error = time.monotonic(), str(outcome.error)
                if outcome.error.__class__.__name__ == "TransientError":
                    self._standing[order.table.id] = replace(self._ask(order.table.id), failed_at=standing.failed_at)
                continue
            if order.to_lsn is None:
                continue
            standing.failed_at = standing.error = None
            standing.merged = outcome.merged
            if standing.backlog is not None and standing.backlog <= to_lsn:
                standing.backlog = None
            outcome.check = self._validated(outcome.check)
            if outcome.applied is not None:
                merges.append(_merge_report(order, outcome, outcome.applied, to_lsn))
        return tuple(merges), failed

    def _validated(self, check: CheckReport | None) -> CheckReport | None:
        """Hand a summary to the validator; the report, with what validations have said of the table so far."""
        if check is None or check.summary is None:
            return check
        self._validator.submit(str(check.table), check.rules, check.summary)
        verdict = self._validator.verdict(str(check.table))
        return check if verdict is None else replace(check, validation_json=verdict.shown.json)

    def _overlap(self, table: TableId, standing: _Standing) -> str | None:
        """The snapshot whose rows the slice may hold again; None once merging is past it."""
        taken: TakenSnapshot | None = self._snapshots.get((table, standing.token or 0))
        if taken is None or (standing.merged is not None and standing.merged >= taken.lsn):
            return None
        return taken.visible


def _merge_report(order: SliceOrder, outcome: SliceOutcome, applied: Applied, to_lsn: int) -> MergeReport:
    return MergeReport(
        order.table.id,
        Lsn(to_lsn),
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
