"""A run of snapshots that signals request, with the store that it has in a lake, and without a server and Spark."""

from __future__ import annotations

import uuid
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from cdc_core.engine.backfill.blocking import BlockingSnapshots
from cdc_core.engine.backfill.snapshots import LakeSnapshots
from cdc_core.engine.backfill.stored import StoredProgress
from cdc_core.lake.chunks.task import ChunkOrder, ChunkOutcome
from cdc_core.lake.schema.target_schema import TargetSchema
from cdc_core.lake.slice.order import Merge, SnapshotInForce
from cdc_core.lake.stores.progress_log import ProgressLog
from cdc_core.lake.stores.range_plans import RangePlan
from cdc_core.lake.stores.staged_rows import StagedFile, StagedRows, write_staged
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableSchema
from cdc_core.snapshot.incremental.lake_progress import LakeProgress
from cdc_core.snapshot.incremental.progress import Collection
from cdc_core.snapshot.incremental.queue import SnapshotQueue
from cdc_core.snapshot.incremental.range_reads import Planned, RangeRead
from cdc_core.snapshot.incremental.staged import RangeFacts, RangeToRead
from cdc_core.snapshot.notifications import Notifier
from cdc_core.snapshot.reports import SnapshotReport
from cdc_core.snapshot.signals.parse import Signal
from cdc_core.snapshot.signals.processor import SignalProcessor
from cdc_core.snapshot.signals.rows import SignalRow
from tests.delta.source_model import TABLE

NAME = TABLE.id
EXECUTE = '{"data-collections": ["public.items"]}'
ROWS = pa.record_batch({"k": [1]})


class Channel:
    def __init__(self) -> None:
        self.signals: list[Signal] = []

    def take(self) -> list[Signal]:
        found, self.signals = self.signals, []
        return found

    def done(self) -> None:
        pass


def staged(path: Any, wanted: RangeToRead, *, token: int = 0, reached: int = 20, table: TableSchema = TABLE) -> Any:
    """Write the file of a range of one row, as a task does."""
    facts = RangeFacts(str(uuid.uuid4()), wanted, table, token, 0, reached)
    return write_staged(path, iter([("1:1:", 5, ROWS)]), iter([facts.to_json()]))


class Reads:
    """Reads ranges of one row each, ``count`` of them, as soon as it is asked. ``waiting`` are not ended yet."""

    threads = 2

    def __init__(self, tmp_path: Any, count: int) -> None:
        self.path, self.count = str(tmp_path / "staged"), count
        self.store = StagedRows(self.path, {})
        self.started: list[RangeToRead] = []
        self.error: BaseException | None = None
        self.result: RangeRead | None = None
        self.plan_id = "plan"
        self.waiting: list[tuple[Future[RangeRead], RangeToRead]] = []
        self.is_slow = False

    def plan(self, collection: Collection) -> Future[Any]:
        found: Future[Any] = Future()
        bounds = tuple((str(number),) for number in range(1, self.count))
        found.set_result(Planned(RangePlan(self.plan_id, collection.table, 1, ("k",), bounds, 100), 10))
        return found

    def read(self, wanted: RangeToRead, instead_of: StagedFile | None = None) -> Future[RangeRead]:
        self.started.append(wanted)
        found: Future[RangeRead] = Future()
        if self.error is not None:
            found.set_exception(self.error)
        elif self.result is not None:
            found.set_result(self.result)
        elif self.is_slow:
            found.set_running_or_notify_cancel()
            self.waiting.append((found, wanted))
        else:
            self.stage(wanted, instead_of)
            found.set_result(RangeRead(1))
        return found

    def stage(self, wanted: RangeToRead, instead_of: StagedFile | None = None, **facts: Any) -> None:
        self.store.create()
        self.store.add(staged(self.path, wanted, **facts), instead_of)

    def end(self) -> None:
        for future, wanted in self.waiting:
            self.stage(wanted)
            future.set_result(RangeRead(1))
        self.waiting.clear()

    def close(self) -> None:
        pass


@dataclass
class Lake:
    """``applied`` are the orders, ``token`` the snapshot in force, ``outcomes`` what the next orders lead to."""

    log: ProgressLog
    current: bool = True
    token: int = 0
    applied: list[ChunkOrder] = field(default_factory=list)
    outcomes: list[ChunkOutcome] = field(default_factory=list)
    stored: list[LakeProgress] = field(default_factory=list)

    def is_current(self, table: Any) -> bool:
        return self.current

    def order_for_chunks(self, table: Any, reached: int, passed: int) -> Merge | None:
        return Merge(TargetSchema(TABLE), SnapshotInForce(self.token), TABLE, passed) if passed >= reached else None

    def apply_chunks(self, order: ChunkOrder) -> ChunkOutcome:
        self.stored.append(LakeProgress.from_json(self.log.read()))
        self.applied.append(order)
        return self.outcomes.pop(0) if self.outcomes else ChunkOutcome(NAME)

    def reserve(self, tables: Any) -> dict[Any, int] | None:
        return dict.fromkeys(tables, 7)

    def note_read(self, table: Any) -> None:
        self.current = True


class Run:
    """One run over the same stored progress and staged ranges as others before it."""

    def __init__(self, tmp_path: Any, ranges: int = 3) -> None:
        self.path = str(tmp_path / "progress")
        log = ProgressLog(self.path, 0)
        state, self.heard = LakeProgress.from_json(log.read()), list[Any]()
        notifier = Notifier("c", (), self.heard.append)
        self.table: TableSchema | None = TABLE
        self.queue = SnapshotQueue(lambda table: self.table, lambda table, wanted: True, notifier, state.progress)
        self.channel, self.reads = Channel(), Reads(tmp_path, ranges)
        self.lake = Lake(ProgressLog(self.path, 0))
        processor = SignalProcessor(self.queue, NAME._replace(table="s"), True, [self.channel], {}, lambda: [NAME])
        reads: Any = self.reads
        self.taken: list[Any] = []
        self.stops = False
        self.snapshots = LakeSnapshots(
            self.queue,
            processor,
            reads,
            StagedRows(self.reads.path, {}),
            StoredProgress(log, state),
            BlockingSnapshots(lambda numbers: self.take(dict(numbers)), notifier, lambda: self.stops),
            keeps_events=True,
            moved_keys=2,
        )

    def take(self, numbers: Any) -> dict[Any, SnapshotReport]:
        self.taken.append(dict(numbers))
        return {table: SnapshotReport(table, 5, Lsn(30), 0.1, 1) for table in numbers}

    def between_rounds(self, times: int = 1, passed: int = 20) -> None:
        for _ in range(times):
            self.snapshots.between_rounds(self.lake, passed)

    def ask(self, lsn: int = 4, data: str = EXECUTE) -> None:
        self.snapshots.note([SignalRow(1, lsn, 0, False, "1", "execute-snapshot", data, lsn, 0)])

    @property
    def stored(self) -> LakeProgress:
        return LakeProgress.from_json(ProgressLog(self.path, 0).read())

    @property
    def staged(self) -> list[StagedFile]:
        return StagedRows(self.reads.path, {}).look()

    @property
    def statuses(self) -> list[str]:
        return [one.additional_data["status"] for one in self.heard if "status" in one.additional_data]
