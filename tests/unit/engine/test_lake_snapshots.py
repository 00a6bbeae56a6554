"""What becomes of ranges between two rounds: what is stored when, what is read again, what is left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cdc_core.engine.backfill import range_requests as pace
from cdc_core.engine.backfill import staged_writes
from cdc_core.engine.backfill.staged_writes import MAX_TRIES
from cdc_core.errors import (
    LimitExceededError,
    LockedError,
    OlderTransactionsError,
    RereadNeededError,
    SourceError,
    TransientError,
)
from cdc_core.lake.chunks.task import ChunkOutcome
from cdc_core.lsn import Lsn
from cdc_core.snapshot.incremental.lake_progress import MAX_PASSES
from cdc_core.snapshot.incremental.progress import Collection
from cdc_core.snapshot.incremental.range_reads import RangeRead
from cdc_core.snapshot.incremental.staged import RangeToRead
from cdc_core.snapshot.notifications import ScanStatus, SnapshotStatus
from cdc_core.snapshot.reports import SnapshotReport
from cdc_core.snapshot.signals.parse import Signal
from tests.delta.source_model import TABLE
from tests.support.backfill_run import NAME, Run


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch) -> Iterator[None]:
    monkeypatch.setattr(pace, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(staged_writes, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(staged_writes, "_DESCRIBE_SECONDS", 0.0)
    yield


def of_a_job(number: int = 1) -> RangeToRead:
    return RangeToRead("a job", number, Collection(NAME), 10)


def test_a_signal_is_stored_before_it_returns_and_obeyed_once(tmp_path):
    run = Run(tmp_path)
    run.ask(lsn=4)
    assert run.stored.progress.queue == (Collection(NAME),) and run.stored.signal == (4, 0)
    again = Run(tmp_path)
    again.ask(lsn=4)
    assert again.queue.progress.queue == (Collection(NAME),) and again.heard == []
    again.ask(lsn=5)
    assert again.stored.signal == (5, 0)


def test_ranges_are_written_once_the_lake_has_passed_them_and_are_staged_until_then(tmp_path):
    run = Run(tmp_path)
    run.ask()
    run.between_rounds(4, passed=19)
    assert run.lake.applied == [] and run.snapshots.is_busy, "the lake has not reached what the chunks show"
    assert [wanted.number for wanted in run.reads.started] == [1, 2, 3] and len(run.staged) == 3
    assert [(wanted.after, wanted.upto) for wanted in run.reads.started] == [
        (None, ("1",)),
        (("1",), ("2",)),
        (("2",), None),
    ]
    run.between_rounds(6)
    assert [order.scanned for order in run.lake.applied] == [10, 20, 20], "changes are searched from the start on, once"
    assert [order.ordinal for order in run.lake.applied] == [1, 2, 3]
    assert [one.searches[NAME].writing[1] for one in run.lake.stored] == [1, 2, 3], "ordinals are stored before"
    assert run.staged == [] and not run.snapshots.is_busy and run.stored.progress.queue == ()
    assert [news.type for news in run.heard][-2:] == [SnapshotStatus.TABLE_SCAN_COMPLETED, SnapshotStatus.COMPLETED]
    assert run.heard[-2].additional_data["total_rows_scanned"] == "3"


def test_a_killed_run_reads_again_only_what_is_neither_written_nor_staged(tmp_path):
    first = Run(tmp_path, ranges=6)
    first.ask()
    first.between_rounds(6)
    written = len(first.lake.applied)
    there = {each.number for each in first.reads.started}
    second = Run(tmp_path, ranges=6)
    second.between_rounds(20)
    assert not there & {each.number for each in second.reads.started} and written
    assert len(first.lake.applied) + len(second.lake.applied) == 6
    assert second.stored.progress.queue == () and second.staged == []


def test_a_range_that_was_being_written_is_written_again_under_the_same_ordinal(tmp_path, monkeypatch):
    first = Run(tmp_path, ranges=1)
    first.ask()

    def killed(name: str) -> None:
        if name == "before-unstaging":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(staged_writes.failpoints, "hit", killed)
        with pytest.raises(KeyboardInterrupt):
            first.between_rounds(6)
    second = Run(tmp_path, ranges=1)
    second.between_rounds(4)
    assert [one.ordinal for one in [*first.lake.applied, *second.lake.applied]] == [1, 1]
    assert second.reads.started == [] and second.stored.progress.queue == () and second.staged == []


def test_a_range_of_another_process_is_written_without_a_request(tmp_path):
    run = Run(tmp_path)
    run.reads.stage(of_a_job())
    run.reads.stage(of_a_job(2), reached=30)
    assert run.snapshots.needed == {NAME: 5}, "changes that the chunk does not show are kept"
    run.between_rounds(3)
    assert run.snapshots.is_busy and len(run.lake.applied) == 1, "the other waits for its position"
    run.between_rounds(3, passed=30)
    assert len(run.lake.applied) == 2 and run.staged == [] and not run.snapshots.is_busy and run.stored.discarded == ()
    assert run.snapshots.needed == {}


def test_a_paused_table_holds_up_neither_others_nor_the_end_of_a_run(tmp_path):
    run = Run(tmp_path)
    run.lake.current = False
    run.reads.stage(of_a_job())
    run.between_rounds(3)
    assert run.lake.applied == [] and not run.snapshots.is_busy and len(run.staged) == 1
    assert run.reads.started == [], "the table is as it was when it was read"
    run.lake.current = True
    run.between_rounds(3)
    assert len(run.lake.applied) == 1


def test_a_range_of_a_table_that_was_altered_since_is_read_again_in_its_place(tmp_path):
    run = Run(tmp_path)
    run.reads.stage(of_a_job())
    run.table, run.lake.current = replace(TABLE, oid=TABLE.oid + 1), False
    run.between_rounds(1)
    assert [wanted.number for wanted in run.reads.started] == [1] and len(run.staged) == 1
    run.lake.current = True
    run.between_rounds(3)
    assert len(run.lake.applied) == 1 and run.staged == []


def test_a_run_does_not_end_before_a_range_is_read_again_unless_its_table_is_locked(tmp_path, monkeypatch):
    run = Run(tmp_path)
    run.reads.stage(of_a_job())
    run.table, run.lake.current = replace(TABLE, oid=TABLE.oid + 1), False
    run.reads.result = RangeRead(is_altered=True)
    monkeypatch.setattr(staged_writes, "_DESCRIBE_SECONDS", 1000.0)
    run.between_rounds(3)
    assert len(run.reads.started) == 1 and run.snapshots.is_busy, "it was altered once more, and is read again later"
    monkeypatch.setattr(staged_writes, "_DESCRIBE_SECONDS", 0.0)
    run.reads.result, run.reads.error = None, LockedError(str(NAME), 500)
    run.between_rounds(MAX_TRIES + 5)
    monkeypatch.setattr(staged_writes, "_DESCRIBE_SECONDS", 1000.0)
    run.between_rounds(2)
    assert not run.snapshots.is_busy and len(run.staged) == 1, "however long it is locked"
    monkeypatch.setattr(staged_writes, "_DESCRIBE_SECONDS", 0.0)
    run.reads.error = None
    run.between_rounds(3)
    run.lake.current = True
    run.between_rounds(2)
    assert len(run.lake.applied) == 1 and run.staged == []


def test_a_range_of_a_table_that_was_dropped_is_discarded_with_the_reason(tmp_path):
    run = Run(tmp_path)
    run.reads.stage(of_a_job())
    run.table, run.lake.current = None, False
    run.between_rounds(2)
    assert run.staged == [] and run.lake.applied == [] and not run.snapshots.is_busy
    assert [(one.request, one.number) for one in run.stored.discarded] == [("a job", 1)]


def test_rows_that_were_read_before_a_snapshot_of_the_table_are_not_written_over_it(tmp_path):
    run = Run(tmp_path)
    run.reads.stage(of_a_job(), token=3)
    run.lake.token = 7
    run.between_rounds(2)
    assert run.staged == [] and run.lake.applied == [] and run.stored.discarded == ()
    run.reads.stage(of_a_job(), token=9)
    run.between_rounds(1)
    assert len(run.reads.started) == 1, "of a lake table that was made anew they are read again"


def test_rows_that_moved_are_read_once_more_before_the_table_is_done(tmp_path):
    run = Run(tmp_path, ranges=1)
    run.lake.outcomes = [ChunkOutcome(NAME, rest=(("8",), ("9",), ("8",), ("7",)))]
    run.ask()
    run.between_rounds(9)
    assert [wanted.keys for wanted in run.reads.started] == [(), (("8",), ("9",)), (("7",),)]
    assert len(run.lake.applied) == 3 and not run.snapshots.is_busy and run.stored.progress.queue == ()


def test_rows_of_a_jobs_table_that_moved_are_read_again_after_a_fault_although_nothing_else_is_left(tmp_path):
    run = Run(tmp_path)
    run.lake.outcomes = [ChunkOutcome(NAME, rest=(("8",),))]
    run.reads.error = TransientError("The connection was cut.", "Wait.")
    run.reads.stage(of_a_job())
    run.between_rounds(3)
    assert run.staged == [] and len(run.lake.applied) == 1
    run.reads.error = None
    run.between_rounds(3)
    assert run.reads.started[-1].keys == (("8",),) and len(run.lake.applied) == 2 and run.staged == []


def test_where_their_keys_have_no_text_the_table_is_read_again_so_often_and_then_said(tmp_path, caplog):
    run = Run(tmp_path, ranges=1)
    run.lake.outcomes = [ChunkOutcome(NAME, rest=None)]
    run.ask()
    run.between_rounds(9)
    assert len(run.lake.applied) == 2 and not run.snapshots.is_busy
    run.lake.outcomes = [ChunkOutcome(NAME, rest=None) for _ in range(50)]
    run.ask(lsn=6)
    run.between_rounds(60)
    assert len(run.lake.applied) == 2 + MAX_PASSES + 1 and not run.snapshots.is_busy
    assert "Take a blocking snapshot of it" in caplog.text


def test_a_table_of_which_a_jobs_rows_moved_too_often_is_read_as_a_whole(tmp_path):
    run = Run(tmp_path, ranges=2)
    run.lake.outcomes = [ChunkOutcome(NAME, error=RereadNeededError("Keys.", "Wait."))]
    run.reads.stage(of_a_job())
    run.between_rounds(9)
    assert [wanted.number for wanted in run.reads.started] == [1, 2] and run.staged == []
    assert [one.request for one in run.stored.discarded] == ["a job"] and not run.snapshots.is_busy


def test_older_transactions_are_waited_for_however_long_without_keeping_a_run_busy(tmp_path):
    run = Run(tmp_path, ranges=1)
    run.reads.error = OlderTransactionsError("Transactions are still open.", "End them.")
    run.ask()
    run.between_rounds(200)
    assert run.lake.applied == [] and not run.snapshots.is_busy and run.queue.progress.queue
    run.reads.error = None
    run.between_rounds(4)
    assert len(run.lake.applied) == 1 and not run.queue.progress.queue


def test_a_table_that_is_locked_is_read_once_it_is_not_however_long_that_lasts(tmp_path, caplog):
    run = Run(tmp_path, ranges=1)
    run.reads.error = LockedError(str(NAME), 500)
    run.ask()
    run.between_rounds(MAX_TRIES + 5)
    assert run.lake.applied == [] and not run.snapshots.is_busy and run.queue.progress.queue
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert [str(NAME) in text for text in warnings] == [True], "it is reported once"
    run.reads.error = None
    run.between_rounds(4)
    assert len(run.lake.applied) == 1 and not run.queue.progress.queue


def test_rows_that_could_not_be_written_are_written_later_and_at_last_left_out(tmp_path):
    run = Run(tmp_path, ranges=1)
    error = TransientError("Another run.", "Wait.")
    run.lake.outcomes = [ChunkOutcome(NAME, error=error)]
    run.ask()
    run.between_rounds(8)
    assert len(run.lake.applied) == 2 and not run.snapshots.is_busy and len(run.reads.started) == 1
    run.lake.outcomes = [ChunkOutcome(NAME, error=error) for _ in range(200)]
    run.ask(lsn=6)
    run.between_rounds(MAX_TRIES + 5)
    assert not run.snapshots.is_busy and run.staged == [] and run.statuses == ["SUCCEEDED", "SKIPPED"]


def test_rows_that_too_many_rules_refuse_end_their_table_and_a_later_request_is_obeyed(tmp_path):
    run = Run(tmp_path, ranges=2)
    run.lake.outcomes = [ChunkOutcome(NAME, error=LimitExceededError("Too many.", "Correct them."))]
    run.ask()
    run.between_rounds(6)
    run.ask(lsn=6)
    run.between_rounds(9)
    assert run.statuses == ["SKIPPED", "SUCCEEDED"] and run.staged == []


@pytest.mark.parametrize(
    ("error", "result", "status"),
    [
        (SourceError("Not allowed.", "Allow it."), None, "SQL_EXCEPTION"),
        (None, RangeRead(ended=ScanStatus.UNKNOWN_SCHEMA), "UNKNOWN_SCHEMA"),
        (TransientError("The server restarts.", "Wait."), None, "SKIPPED"),
        (None, RangeRead(is_altered=True), "SKIPPED"),
    ],
)
def test_a_table_that_cannot_be_read_is_left_out(tmp_path, error, result, status):
    run = Run(tmp_path)
    run.reads.error, run.reads.result = error, result
    run.ask()
    run.between_rounds(3 * MAX_TRIES)
    assert not run.snapshots.is_busy and run.stored.progress.queue == () and run.statuses == [status]


def test_a_stop_lets_go_of_what_was_read_and_of_what_is_being_read(tmp_path):
    run = Run(tmp_path)
    run.ask()
    run.between_rounds(2, passed=0)
    run.reads.is_slow = True
    run.between_rounds(2, passed=0)
    run.reads.stage(of_a_job())
    run.channel.signals.append(Signal("2", "stop-snapshot", {}))
    run.between_rounds(2)
    run.reads.end()
    run.between_rounds(3)
    assert run.lake.applied == [] and not run.snapshots.is_busy and run.staged == []
    assert run.stored.progress.queue == () and [one.request for one in run.stored.discarded] == ["a job"]


def test_while_paused_nothing_is_read_and_what_is_staged_is_written(tmp_path):
    run = Run(tmp_path, ranges=9)
    run.ask()
    run.between_rounds(2, passed=0)
    before = len(run.reads.started)
    run.channel.signals.append(Signal("2", "pause-snapshot", {}))
    run.between_rounds(9)
    assert len(run.lake.applied) == before == len(run.reads.started) and not run.snapshots.is_busy
    again = Run(tmp_path, ranges=9)
    again.channel.signals.append(Signal("3", "resume-snapshot", {}))
    again.between_rounds(30)
    assert before + len(again.lake.applied) == 9 and again.stored.progress.queue == ()


def test_a_table_that_is_asked_for_while_it_is_read_is_read_again_after_that(tmp_path):
    run = Run(tmp_path, ranges=2)
    run.ask()
    run.between_rounds(2, passed=0)
    run.ask(lsn=5)
    run.between_rounds(20)
    assert len(run.lake.applied) == 4 and run.statuses == ["SUCCEEDED", "SUCCEEDED"]


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

    def take(numbers: Any) -> Any:
        if is_raised:
            raise error
        return {NAME: SnapshotReport(NAME, 5, Lsn(30), 0.1, 1), other: error}

    run.take = take
    read: list[Any] = []
    run.lake.note_read = read.append  # type: ignore[method-assign]
    run.queue.progress = replace(run.queue.progress, blocking=(Collection(NAME), Collection(other)))
    run.between_rounds()
    assert read == [NAME, other] and run.stored.progress.blocking == () and not run.snapshots.is_busy
    told = {n.additional_data["scanned_collection"]: n.additional_data["status"] for n in run.heard[1:-1]}
    first = "SQL_EXCEPTION" if is_raised else "SUCCEEDED"
    assert told == {str(NAME): first, str(other): "SQL_EXCEPTION"} and run.heard[-1].type is SnapshotStatus.ABORTED


def test_tables_committed_before_a_temporary_error_are_loaded_again(tmp_path):
    run = Run(tmp_path)

    def take(numbers: Any) -> Any:
        raise TransientError("The server restarts.", "Wait.")

    run.take = take
    read: list[Any] = []
    run.lake.note_read = read.append  # type: ignore[method-assign]
    run.queue.progress = replace(run.queue.progress, blocking=(Collection(NAME),))
    run.between_rounds()
    assert read == [NAME] and run.queue.progress.blocking == (Collection(NAME),)
