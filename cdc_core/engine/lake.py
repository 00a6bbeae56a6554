"""The lake as the engine sees it: appends to changelogs, checks, merge rounds, and where each table stands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cdc_core import failpoints
from cdc_core.clock import now_us
from cdc_core.engine.batch import Batch, Position, VersionFiles
from cdc_core.engine.checks import TableChecks
from cdc_core.engine.reports import MergeReport, RoundReport
from cdc_core.engine.spool import ReadSpoolFiles, in_groups
from cdc_core.engine.tables import TableBook
from cdc_core.engine.typing_plan import TypingPlan
from cdc_core.errors import CdcError, TransientError
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from cdc_core.sink.delta.changelog import append, complete_reads
from cdc_core.sink.delta.commit_log import changelog_position, lake_position
from cdc_core.sink.delta.merge import Round, merge_round
from cdc_core.sink.delta.paths import LakePaths
from cdc_core.sink.delta.retention import DAY_US, expire_changes
from cdc_core.sink.delta.rounds import record_round
from cdc_core.sink.delta.snapshot_log import TakenSnapshot, read_snapshots
from cdc_core.sink.options import SinkOptions
from cdc_core.spark.errors import received
from cdc_core.spark.map_in_arrow import read_by_tasks

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Standing:
    """Where one table stands. ``news`` is the newest commit in its changelog that the lake table may lack.

    It may be the commit of a transaction of which only a part has come: it is merged once the stream is past it.
    """

    changelog: Position | None = None
    token: int | None = None
    merged: int | None = None
    news: int | None = None
    known: bool = field(default=False)


class LakeSink:
    """A ``stream.Sink`` over Delta tables. One process at a time; tables are handled side by side in threads."""

    def __init__(
        self,
        spark: Any,
        paths: LakePaths,
        slot: str,
        plan: TypingPlan,
        book: TableBook,
        checks: TableChecks,
        options: SinkOptions,
    ) -> None:
        self._spark = spark
        self._paths = paths
        self._slot = slot
        self._plan = plan
        self._book = book
        self._checks = checks
        self._options = options
        self._expired_on: int | None = None
        self._standing: dict[TableId, _Standing] = {}
        self._snapshots = read_snapshots(spark, paths.snapshots)

    def positions(self, tables: Iterable[TableId]) -> dict[TableId, Position]:
        """What each table's changelog holds already: the reader drops it when the slot sends it again."""
        wanted = list(tables)
        self._side_by_side([partial(self._stand, table) for table in wanted])
        return {table: s.changelog for table in wanted if (s := self._standing[table]).changelog is not None}

    def append(self, batch: Batch) -> None:
        """Append every table's rows to its changelog; the position goes in the same commit."""
        self._side_by_side([partial(self._append_table, batch, table) for table in batch.versions])

    def has_news(self, to_lsn: Lsn) -> bool:
        """Whether some changelog is ahead of its lake table with transactions that are whole at ``to_lsn``."""
        return any(s.news is not None and s.news <= to_lsn for s in self._standing.values())

    def merge(self, to_lsn: Lsn) -> RoundReport:
        """Check and merge every table with news up to ``to_lsn``, the end of a whole transaction."""
        todo = [table for table, s in self._standing.items() if s.news is not None and s.news <= to_lsn]
        failed: dict[TableId, str] = {}

        def one(table: TableId) -> MergeReport | None:
            try:
                return self._merge_table(table, to_lsn)
            except CdcError as error:
                failed[table] = str(error)
                return None

        reports = self._side_by_side([partial(one, table) for table in todo])
        done = tuple(report for report in reports if report is not None)
        if done:
            versions = {report.table: report.lake_version for report in done}
            record_round(self._spark, self._paths.rounds, to_lsn, versions)
        return RoundReport(to_lsn, done, failed)

    def expire(self) -> None:
        """Take merged changes out of the changelogs that are older than wal2lake.changelog.retention.days.

        Once a day and table. A table where another writer is in the way keeps its rows until the next run.
        """
        now, days = now_us(), self._options.changelog_retention_days
        today = now // DAY_US
        if not days or self._expired_on == today:
            return
        self._expired_on = today
        self._side_by_side([partial(self._expire_table, table, now, days) for table in list(self._standing)])

    def _expire_table(self, table: TableId, now: int, days: int) -> None:
        merged = self._standing[table].merged
        try:
            expire_changes(self._spark, self._paths.changelog(table), self._slot, table, merged, now, days)
        except TransientError as error:
            _log.warning("Old changes of %s stay for now. %s", table, error.message)

    def _stand(self, table: TableId) -> _Standing:
        """Where the table stands, asked of its own commits the first time."""
        standing = self._standing.setdefault(table, _Standing())
        if standing.known:
            return standing
        if self._options.changelog_reads:
            # Before anything is merged, for then the lake no longer shows the snapshot alone.
            complete_reads(self._spark, self._paths.lake(table), self._paths.changelog(table), self._slot, table)
        found = changelog_position(self._spark, self._paths.changelog(table), self._slot, table)
        lake = lake_position(self._spark, self._paths.lake(table), self._slot, table)
        standing.token, standing.merged = lake.token, lake.lsn
        if found is not None:
            standing.changelog = Position(found.commit_lsn, found.tx_index)
            if lake.lsn is None or lake.lsn < found.commit_lsn:
                standing.news = found.commit_lsn
        standing.known = True
        return standing

    def _append_table(self, batch: Batch, table: TableId) -> None:
        standing = self._stand(table)
        complete = batch.complete_to(table)
        frames = [self._rows_of(version) for version in batch.versions[table]]
        with received(f"appending to the changelog of {table}"):
            append(frames, self._paths.changelog(table), self._slot, table, complete)
        failpoints.hit(failpoints.BETWEEN_APPENDS)
        standing.news = max(int(commits.max()) for version in batch.versions[table] for commits in version.commits)

    def _rows_of(self, version: VersionFiles) -> Any:
        items = in_groups(version.paths, self._spark.sparkContext.defaultParallelism)
        schema = self._plan.typer(version.table).change_schema
        return read_by_tasks(self._spark, items, ReadSpoolFiles(self._plan), schema)

    def _merge_table(self, table: TableId, to_lsn: Lsn) -> MergeReport | None:
        standing = self._stand(table)
        schema = self._book.current(table)
        snapshot = self._overlap(table, standing)
        todo = Round(
            slot=self._slot,
            table=schema,
            changelog=self._paths.changelog(table),
            lake=self._paths.lake(table),
            from_lsn=standing.merged or 0,
            to_lsn=int(to_lsn),
            token=standing.token or 0,
            snapshot=snapshot,
        )
        with received(f"checking and merging {table}"):
            report = self._checks.checked_merge(self._spark, todo, self._paths.quarantine(table), merge_round)
        standing.merged = int(to_lsn) if report is not None else standing.merged
        standing.news = None if standing.news is not None and standing.news <= to_lsn else standing.news
        failpoints.hit(failpoints.BETWEEN_MERGES)
        return report

    def _overlap(self, table: TableId, standing: _Standing) -> str | None:
        """The snapshot whose rows the slice may hold again; None once merging is past it."""
        taken: TakenSnapshot | None = self._snapshots.get((table, standing.token or 0))
        if taken is None or (standing.merged is not None and standing.merged >= taken.lsn):
            return None
        return taken.visible

    def _side_by_side(self, calls: list[Callable[[], Any]]) -> list[Any]:
        if len(calls) <= 1:
            return [call() for call in calls]
        with ThreadPoolExecutor(min(self._options.merge_parallelism, len(calls))) as pool:
            return [future.result() for future in [pool.submit(call) for call in calls]]
