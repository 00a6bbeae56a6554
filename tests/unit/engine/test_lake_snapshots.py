"""What becomes of groups of chunks between two rounds: what is stored when, what is read again, what is left out."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from cdc_core.engine.backfill import snapshots as lake_snapshots
from cdc_core.engine.backfill.blocking import BlockingSnapshots
from cdc_core.engine.backfill.snapshots import LakeSnapshots
from cdc_core.engine.backfill.task import ChunkOrder, ChunkOutcome
from cdc_core.engine.slice.order import Merge, SnapshotInForce, TargetSchema
from cdc_core.errors import OlderTransactionsError, RereadNeededError, SourceError, TransientError
from cdc_core.lake.stores.progress_log import ProgressLog
from cdc_core.lsn import Lsn
from cdc_core.snapshot.incremental.groups import ChunkFile, ChunkGroup
from cdc_core.snapshot.incremental.lake_progress import LakeProgress
from cdc_core.snapshot.incremental.progress import Collection
from cdc_core.snapshot.incremental.queue import SnapshotQueue
from cdc_core.snapshot.notifications import Notifier, ScanStatus, SnapshotStatus
from cdc_core.snapshot.reports import SnapshotReport
from cdc_core.snapshot.signals.parse import Signal
from cdc_core.snapshot.signals.processor import SignalProcessor
from cdc_core.snapshot.signals.rows import SignalRow
from tests.delta.source_model import TABLE

NAME = TABLE.id
EXECUTE = '{"data-collections": ["public.items"]}'


class Channel:
    def __init__(self) -> None:
        self.signals: list[Signal] = []

    def take(self) -> list[Signal]:
        found, self.signals = self.signals, []
        return found

    def done(self) -> None:
        pass


class Reader:
    """Gives chunks of one row each, of keys 1 to ``last``; then what is left to be read once more."""

    def __init__(self, tmp_path: Any, last: int = 3) -> None:
        self.folder, self.last, self.started = tmp_path, last, list[LakeProgress]()
        self.error: BaseException | None = None

    def start(self, state: LakeProgress) -> Future[ChunkGroup]:
        self.started.append(state)
        found: Future[ChunkGroup] = Future()
        if self.error is not None:
            found.set_exception(self.error)
        else:
            found.set_result(self._group(state))
        return found

    def _group(self, state: LakeProgress) -> ChunkGroup:
        collection, progress = state.progress.current, state.progress
        assert collection is not None
        scanned = None
        if progress.maximum_key is None:
            progress, scanned = progress.begun(("k",), (str(self.last),)), 10
        at = 0 if progress.last_key is None else int(progress.last_key[0] or 0)
        rest = len(state.rest) if at == self.last else 0
        if not rest:
            at += 1
        path = self.folder / f"chunk-{len(self.started)}"
        path.write_text("rows")
        chunk = ChunkFile(str(path), 1, "1:1:", 5)
        ended = ScanStatus.SUCCEEDED if at == self.last else None
        return ChunkGroup(collection, TABLE, progress.behind((str(at),)), (chunk,), 20, scanned, rest, ended)

    def enough(self) -> None:
        pass

    def slow(self, is_slow: bool) -> None:
        pass

    def close(self) -> None:
        pass


class Lake:
    def __init__(self) -> None:
        self.current, self.applied, self.outcomes = True, list[ChunkOrder](), list[ChunkOutcome]()
        self.stored: list[LakeProgress] = []
        self.log: ProgressLog | None = None

    def is_current(self, table: Any) -> bool:
        return self.current

    def order_for_chunks(self, table: Any, reached: int, passed: int) -> Merge | None:
        return Merge(TargetSchema(TABLE), SnapshotInForce(), TABLE, passed) if passed >= reached else None

    def apply_chunks(self, order: ChunkOrder) -> ChunkOutcome:
        assert self.log is not None
        self.stored.append(LakeProgress.from_json(self.log.read()))
        self.applied.append(order)
        return self.outcomes.pop(0) if self.outcomes else ChunkOutcome(NAME)

    def reserve(self, tables: Any) -> dict[Any, int] | None:
        return dict.fromkeys(tables, 7)

    def note_read(self, table: Any) -> None:
        self.current = True


class Run:
    """One run over the same stored progress as others before it."""

    def __init__(self, tmp_path: Any, last: int = 3) -> None:
        self.log = ProgressLog(str(tmp_path / "progress"), 0)
        state, self.heard = LakeProgress.from_json(self.log.read()), list[Any]()
        notifier = Notifier("c", (), self.heard.append)
        self.queue = SnapshotQueue(lambda table: TABLE, lambda table, wanted: True, notifier, state.progress)
        self.channel, self.reader, self.lake = Channel(), Reader(tmp_path, last), Lake()
        self.lake.log = ProgressLog(str(tmp_path / "progress"), 0)
        processor = SignalProcessor(self.queue, NAME._replace(table="s"), True, [self.channel], {}, lambda: [NAME])
        reader: Any = self.reader
        self.taken: list[Any] = []
        self.stops = False
        self.snapshots = LakeSnapshots(
            self.queue,
            processor,
            reader,
            self.log,
            state,
            BlockingSnapshots(lambda numbers: self.take(dict(numbers)), notifier, lambda: self.stops),
            keeps_events=True,
        )

    def take(self, numbers: Any) -> dict[Any, SnapshotReport]:
        self.taken.append(dict(numbers))
        return {table: SnapshotReport(table, 5, Lsn(30), 0.1, 1) for table in numbers}

    def between_rounds(self, times: int = 1, passed: int = 20) -> None:
        for _ in range(times):
            self.snapshots.between_rounds(self.lake, passed)

    def ask(self, lsn: int = 4, data: str = EXECUTE) -> None:
        self.snapshots.note([SignalRow(1, lsn, 0, False, "1", "execute-snapshot", data, lsn, 0)], 0)

    @property
    def stored(self) -> LakeProgress:
        return LakeProgress.from_json(ProgressLog(self.log._path, 0).read())


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(lake_snapshots, "_RETRY_SECONDS", 0.0)


def test_a_signal_is_stored_before_it_returns_and_obeyed_once(tmp_path):
    run = Run(tmp_path)
    run.ask(lsn=4)
    assert run.stored.progress.queue == (Collection(NAME),) and run.stored.signal == (4, 0)
    again = Run(tmp_path)
    again.ask(lsn=4)
    assert again.queue.progress.queue == (Collection(NAME),) and again.heard == []
    again.ask(lsn=5)
    assert again.stored.signal == (5, 0)


def test_groups_are_applied_in_order_each_stored_before_with_the_key_up_to_which_it_reaches(tmp_path):
    run = Run(tmp_path)
    run.ask()
    run.between_rounds(2, passed=19)
    assert run.lake.applied == [] and run.snapshots.is_busy, "the lake has not reached what the chunks show"
    run.between_rounds(6)
    assert [(s.progress.last_key, s.upto, s.ordinal) for s in run.lake.stored] == [
        (None, ("1",), 1),
        (("1",), ("2",), 2),
        (("2",), ("3",), 3),
    ]
    assert [order.scanned for order in run.lake.applied] == [10, 20, 20]
    assert [order.ordinal for order in run.lake.applied] == [1, 2, 3]
    assert not run.snapshots.is_busy and run.stored == LakeProgress(ordinal=3, signal=(4, 0))
    assert [news.type for news in run.heard][-2:] == [SnapshotStatus.TABLE_SCAN_COMPLETED, SnapshotStatus.COMPLETED]
    assert not list(tmp_path.glob("chunk-*")), "files of rows that were applied are removed"


def test_a_killed_run_is_gone_on_with_from_what_is_stored(tmp_path):
    first = Run(tmp_path)
    first.ask()
    first.between_rounds(3)
    killed = first.lake.stored[-1]
    second = Run(tmp_path)
    second.between_rounds(1)
    assert second.reader.started[0] == killed and killed.upto == ("2",)
    second.between_rounds(6)
    # Group 2 had begun: its rows may be in the changelog, so what is read again for it has its number.
    assert [order.ordinal for order in second.lake.applied] == [2, 3]


def test_rows_that_moved_are_read_once_more_before_the_table_is_done(tmp_path):
    run = Run(tmp_path, last=1)
    run.lake.outcomes = [ChunkOutcome(NAME, rest=(("8",), ("9",), ("8",)))]
    run.ask()
    run.between_rounds(2)
    assert run.reader.started[-1].rest == (("8",), ("9",)) and run.snapshots.is_busy
    run.between_rounds(4)
    assert len(run.lake.applied) == 2 and not run.snapshots.is_busy


def test_where_their_keys_have_no_text_the_table_is_read_once_more(tmp_path):
    run = Run(tmp_path, last=1)
    run.lake.outcomes = [ChunkOutcome(NAME, rest=None)]
    run.ask()
    run.between_rounds(6)
    assert len(run.lake.applied) == 2 and run.reader.started[-1].passes == 1 and not run.snapshots.is_busy


def test_a_table_that_the_lake_does_not_follow_is_waited_for_without_keeping_a_run_busy(tmp_path):
    run = Run(tmp_path, last=1)
    run.lake.current = False
    run.ask()
    run.between_rounds(200)
    assert run.lake.applied == [] and not run.snapshots.is_busy and run.queue.progress.queue
    run.lake.current = True
    run.between_rounds(4)
    assert len(run.lake.applied) == 1 and not run.queue.progress.queue


def test_older_transactions_are_waited_for_however_long_without_keeping_a_run_busy(tmp_path):
    run = Run(tmp_path, last=1)
    run.reader.error = OlderTransactionsError("Transactions are still open.", "End them.")
    run.ask()
    run.between_rounds(200)
    assert run.lake.applied == [] and not run.snapshots.is_busy and run.queue.progress.queue
    run.reader.error = None
    run.between_rounds(4)
    assert len(run.lake.applied) == 1 and not run.queue.progress.queue


@pytest.mark.parametrize("error", [TransientError("Another run.", "Wait."), RereadNeededError("Keys.", "Wait.")])
def test_rows_that_could_not_be_applied_are_read_again_and_at_last_left_out(tmp_path, error):
    run = Run(tmp_path, last=1)
    run.lake.outcomes = [ChunkOutcome(NAME, error=error)]
    run.ask()
    run.between_rounds(4)
    assert len(run.lake.applied) == 2 and not run.snapshots.is_busy
    run.lake.outcomes = [ChunkOutcome(NAME, error=error) for _ in range(200)]
    run.ask(lsn=6)
    run.between_rounds(200)
    assert not run.snapshots.is_busy
    assert [n.additional_data["status"] for n in run.heard if "status" in n.additional_data] == ["SUCCEEDED", "SKIPPED"]


@pytest.mark.parametrize("error", [SourceError("Not allowed.", "Allow it."), ValueError("a fault of ours")])
def test_a_table_that_cannot_be_read_is_left_out(tmp_path, error):
    run = Run(tmp_path)
    run.reader.error = error
    run.ask()
    run.between_rounds(3)
    assert not run.snapshots.is_busy and run.stored.progress.queue == ()


def test_a_stop_lets_go_of_what_was_read(tmp_path):
    run = Run(tmp_path)
    run.ask()
    run.between_rounds(2, passed=0)
    run.channel.signals.append(Signal("2", "stop-snapshot", {}))
    run.between_rounds(3)
    assert run.lake.applied == [] and not run.snapshots.is_busy and not list(tmp_path.glob("chunk-*"))
    assert run.stored.progress.queue == ()


def test_a_blocking_snapshot_is_stored_until_it_is_taken(tmp_path):
    run = Run(tmp_path)
    run.ask(data='{"data-collections": ["public.items"], "type": "blocking"}')
    assert run.stored.progress.blocking == (Collection(NAME),) and run.snapshots.is_busy
    run.stops = True
    run.between_rounds()
    assert run.taken == [], "a run that is to end begins none"
    again = Run(tmp_path)
    again.between_rounds()
    assert again.taken == [{NAME: 7}] and again.stored.progress.blocking == () and not again.snapshots.is_busy
    ends = [SnapshotStatus.TABLE_SCAN_COMPLETED, SnapshotStatus.COMPLETED]
    assert [news.type for news in again.heard] == [SnapshotStatus.STARTED, *ends]


@pytest.mark.parametrize("is_raised", [False, True])
def test_tables_of_a_blocking_snapshot_are_loaded_again_whatever_happened_to_one(tmp_path, is_raised):
    run = Run(tmp_path)
    other, error = NAME._replace(table="other"), SourceError("Not allowed.", "Allow it.")

    def take(numbers):
        if is_raised:
            raise error
        return {NAME: SnapshotReport(NAME, 5, Lsn(30), 0.1, 1), other: error}

    run.take = take
    read = []
    run.lake.note_read = read.append
    run.queue.progress = replace(run.queue.progress, blocking=(Collection(NAME), Collection(other)))
    run.between_rounds()
    assert read == [NAME, other] and run.stored.progress.blocking == () and not run.snapshots.is_busy
    told = {n.additional_data["scanned_collection"]: n.additional_data["status"] for n in run.heard[1:-1]}
    first = "SQL_EXCEPTION" if is_raised else "SUCCEEDED"
    assert told == {str(NAME): first, str(other): "SQL_EXCEPTION"} and run.heard[-1].type is SnapshotStatus.ABORTED


def test_tables_committed_before_a_temporary_error_are_loaded_again(tmp_path):
    run = Run(tmp_path)

    def take(numbers):
        raise TransientError("The server restarts.", "Wait.")

    run.take = take
    read = []
    run.lake.note_read = read.append
    run.queue.progress = replace(run.queue.progress, blocking=(Collection(NAME),))
    run.between_rounds()
    assert read == [NAME] and run.queue.progress.blocking == (Collection(NAME),)


def test_changes_are_needed_from_before_the_group_that_was_written_last(tmp_path):
    run = Run(tmp_path)
    assert run.snapshots.needed == {}
    run.ask()
    run.between_rounds(1)
    assert run.snapshots.needed == {NAME: 0}  # nothing is written yet
    seen = []
    for _ in range(8):
        run.between_rounds(1)
        seen.append(run.snapshots.needed.get(NAME))
    wanted = [lsn for lsn in seen if lsn is not None]
    # The first group was read at 10; each was written at 20.
    assert wanted == sorted(wanted) and {10} <= set(wanted) <= {0, 10, 20}
    assert run.snapshots.needed == {}
