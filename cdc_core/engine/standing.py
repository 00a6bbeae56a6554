"""Where each table stands: what its changelog holds, what its lake table has merged, which shape it is in."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cdc_core.engine.batch import Position
from cdc_core.engine.shapes import Shapes, TableShape
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from cdc_core.sink.delta.paths import LakePaths
from cdc_core.sink.delta.positions import changelog_position, lake_position, shape_app
from cdc_core.sink.delta.reads import complete_reads
from cdc_core.sink.delta.snapshot_log import TakenSnapshot, read_snapshots
from cdc_core.sink.delta.table import DeltaTable
from cdc_core.sink.options import MergeEngine, SinkOptions

_THREADS = 8
_RETRY_SECONDS = 10.0


@dataclass(slots=True)
class Standing:
    """One table. ``backlog`` is the newest commit in its changelog that the lake table may lack.

    It may be the commit of a transaction of which only a part has come: it is merged once the stream is past it.
    ``failed_at`` is when (monotonic seconds) the lake table last could not follow, None since it did, ``error`` why.
    """

    shape: TableShape
    changelog: Position | None = None
    token: int | None = None
    merged: int | None = None
    backlog: int | None = None
    failed_at: float | None = None
    error: str = ""
    engine: MergeEngine = MergeEngine.AUTO

    @property
    def has_failed(self) -> bool:
        """Whether the table could not follow a moment ago: it is tried again some seconds later."""
        return self.failed_at is not None and time.monotonic() - self.failed_at < _RETRY_SECONDS

    @property
    def stands_still(self) -> bool:
        """Whether the table could not follow, and has not since: it waits for its next try."""
        has_more = self.backlog is not None or bool(self.shape.pending) or self.shape.holds_back
        return self.failed_at is not None and has_more

    def is_due(self, to_lsn: int) -> bool:
        """Whether the lake table has something to do without a batch: changes whole at ``to_lsn``, or a step."""
        if self.shape.holds_back or self.has_failed:
            return False
        return bool(self.shape.pending) or (self.backlog is not None and self.backlog <= to_lsn)


class Standings:
    """Every table's standing, asked of the tables' own commits when it is first wanted."""

    def __init__(self, paths: LakePaths, slot: str, options: SinkOptions, shapes: Shapes) -> None:
        self._paths = paths
        self._slot = slot
        self._options = options
        self._shapes = shapes
        self._known: dict[TableId, Standing] = {}
        self._snapshots = read_snapshots(paths.snapshots)

    def open(self, tables: Iterable[TableId]) -> None:
        """Ask for several tables side by side."""
        wanted = list(tables)
        with ThreadPoolExecutor(_THREADS) as pool:
            # Only reading is done side by side: the shapes are for one thread.
            found = list(pool.map(self._look, wanted))
        for table, (standing, in_force) in zip(wanted, found, strict=True):
            standing.shape = self._shapes.open(table, in_force)
            self._known[table] = standing

    def of(self, table: TableId) -> Standing:
        """The table's standing."""
        if table not in self._known:
            self.open([table])
        return self._known[table]

    def again(self, table: TableId) -> Standing:
        """The standing asked anew: another writer changed the table, or it was read again."""
        self._snapshots = read_snapshots(self._paths.snapshots)
        before = self._known.get(table)
        standing, in_force = self._look(table)
        standing.shape = self._shapes.reopen(table, in_force)
        if before is not None:
            standing.failed_at, standing.error = before.failed_at, before.error
        self._known[table] = standing
        return standing

    def __iter__(self) -> Iterator[tuple[TableId, Standing]]:
        return iter(list(self._known.items()))

    def overlap(self, table: TableId) -> TakenSnapshot | None:
        """The snapshot whose rows the next slice may hold again; None once merging is past it."""
        standing = self._known[table]
        taken = self._snapshots.get((table, standing.token or 0))
        if taken is None or (standing.merged is not None and standing.merged >= taken.lsn):
            return None
        return taken

    def _look(self, table: TableId) -> tuple[Standing, int | None]:
        if self._options.changelog_reads:
            # Before anything is merged, for then the lake no longer shows the snapshot alone.
            hours = self._options.lake_history_minutes
            complete_reads(self._paths.lake(table), self._paths.changelog(table), self._slot, table, hours)
        found = changelog_position(DeltaTable.open(self._paths.changelog(table)), self._slot, table)
        opened = DeltaTable.open(self._paths.lake(table))
        lake = lake_position(opened, self._slot, table)
        standing = Standing(TableShape(), token=lake.token, merged=lake.lsn, engine=self._options.merge_engine)
        if found is not None:
            standing.changelog = Position(found.commit_lsn, found.tx_index)
            if lake.lsn is None or lake.lsn < found.commit_lsn:
                standing.backlog = found.commit_lsn
        return standing, None if opened is None else opened.txn(shape_app(self._slot, table))


def first_lsn(taken: TakenSnapshot | None) -> Lsn:
    """The LSN up to which a snapshot shows every change."""
    return Lsn(0) if taken is None or taken.floor is None else taken.floor
