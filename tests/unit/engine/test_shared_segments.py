"""Segments that another run's reader passes on: bounded, filtered, and not confirmed before they are durable."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from cdc_core.decode.pgoutput import sort_segment
from cdc_core.decode.pgoutput.stream_state import MARK_SCHEMA, LogicalMessage, RelationRun, SortedSegment
from cdc_core.decode.raw_batch import RAW_SCHEMA
from cdc_core.decode.segment import Segment
from cdc_core.engine.reading.seen import LastChange, Seen
from cdc_core.engine.reports import BatchReport
from cdc_core.errors import TransientError
from cdc_core.events.stream.acknowledged import Acknowledged
from cdc_core.events.stream.feed import ConfirmationGate, EventFeed
from cdc_core.events.stream.segments import SharedSegments, later
from cdc_core.lake.stores.stream_table import StreamTable
from cdc_core.lsn import Lsn
from cdc_core.schema.relation import Relation, ReplicaIdentity
from cdc_core.schema.table import TableId, TableSchema
from tests.support import plain_pgoutput as plain
from tests.support.waits import wait_until
from tests.unit.decode.streams import CLIENTS, ORDERS, TIME_US, announced, table_of, transaction

RELATION = Relation(1, "s", "t", ReplicaIdentity.DEFAULT, ())
TABLE = TableSchema(TableId("s", "t"), 1, (), ())


def segment(*commits: int, prior: int = 0, is_open: bool = False, size: int = 10) -> SortedSegment:
    """One row and a Commit a transaction, each of which ends 8 behind its commit LSN."""
    rows = [
        {
            **dict.fromkeys(("lsn", "tx_index", "xid", "commit_ts_us", "origin_lsn"), 0),
            "seq": number,
            "commit_lsn": lsn,
            "prior_end_lsn": prior,
            "origin": None,
            "payload": b"x" * size,
        }
        for number, lsn in enumerate(commits)
    ]
    ends = commits[:-1] if is_open else commits
    marks = [
        {"seq": 0, "kind": ord("C"), "lsn": lsn, "xid": 1, "commit_lsn": lsn, "end_lsn": lsn + 8, "commit_ts_us": 0}
        for lsn in ends
    ]
    return SortedSegment(
        [RelationRun(RELATION, TABLE, pa.RecordBatch.from_pylist(rows, schema=RAW_SCHEMA))],
        [],
        [],
        pa.RecordBatch.from_pylist(marks, schema=MARK_SCHEMA),
        ends[-1] if ends else None,
        ends[-1] + 8 if ends else None,
        is_open,
        len(rows),
        len(rows),
        len(rows),
    )


def message(lsn: int, prefix: str) -> LogicalMessage:
    """A message outside of transactions."""
    return LogicalMessage(lsn, lsn, False, prefix, b"", None, None, lsn, None, 0, None, None)


def test_a_message_is_an_event_of_the_stream() -> None:
    seen = Seen(lambda prefix: prefix == "wanted")
    seen.note(replace(segment(100), messages=[message(200, "wanted"), message(300, "other")]))
    assert (seen.last, seen.filtered) == (LastChange(200, "__messages", 200, 200, None, 0), 1)


def test_what_the_destination_has_is_left_out() -> None:
    found = later(segment(100, 200, 300), 208)
    assert found.runs[0].raw.column("commit_lsn").to_pylist() == [300]
    assert found.transactions.column("commit_lsn").to_pylist() == [300]
    assert found.last_commit_end_lsn == 308
    # The reader did not see the transaction before it; the destination has it.
    assert found.runs[0].raw.column("prior_end_lsn").to_pylist() == [208]
    assert later(segment(300, prior=150), 208).runs[0].raw.column("prior_end_lsn").to_pylist() == [150]
    nothing = later(segment(100, 200), 208)
    assert (nothing.runs, nothing.last_commit_lsn, nothing.last_commit_end_lsn) == ([], None, None)


def test_the_slot_is_confirmed_for_both() -> None:
    segments, sent = SharedSegments(1 << 20), list[int]()
    gate = ConfirmationGate(segments, sent.append)
    gate.confirm(50)
    assert sent == [50]
    segments.put(segment(100))
    gate.confirm(208)
    assert sent == [50]
    assert segments.next(0) is not None
    segments.put(segment(200))
    segments.confirm(108)
    segments.confirm_idle(True)  # the second segment still waits
    gate.tick()
    assert sent == [50, 108]
    assert segments.next(0) is not None
    segments.confirm_idle(False)
    gate.tick()
    assert sent == [50, 108]
    segments.confirm(208)
    segments.confirm_idle(True)
    gate.confirm(400)
    assert sent == [50, 108, 400]


FRAMES = [
    plain.frame(payload, 100 + number)
    for number, payload in enumerate(
        [
            *transaction(
                plain.insert(ORDERS.oid, ["1", "a"]),
                plain.insert(CLIENTS.oid, ["7"]),
                plain.update(ORDERS.oid, ["1", "b"]),
                plain.truncate([CLIENTS.oid]),
            ),
            *transaction(plain.message(9, "note", b"x", True), plain.insert(ORDERS.oid, ["2", "c"]), commit_lsn=2000),
            plain.begin(3000, TIME_US, 9),
            plain.insert(CLIENTS.oid, ["8"]),
        ]
    )
]


@pytest.mark.parametrize("cut", range(1, len(FRAMES)))
def test_segments_that_wait_come_as_one_as_if_received_so(cut: int) -> None:
    def described(relation: Relation, lsn: int) -> TableSchema:
        return table_of(relation)

    whole = sort_segment(Segment.of(FRAMES), announced(), described)
    segments, state = SharedSegments(1 << 20), announced()
    for part in (FRAMES[:cut], FRAMES[cut:]):
        segments.put(sort_segment(Segment.of(part), state, described))
    assert segments.next(0) == whole
    assert segments.is_open and segments.waiting_bytes == 0
    assert segments.next(0) is None


def test_no_more_segments_come_as_one_than_fit() -> None:
    segments = SharedSegments(1 << 30)
    for lsn in (100, 200, 300):
        segments.put(segment(lsn, size=5 << 20))
    assert [found and found.last_commit_lsn for found in (segments.next(0), segments.next(0))] == [100, 200]


def test_reading_pauses_at_the_bound_and_the_run_ends_when_it_lasts() -> None:
    segments = SharedSegments(1_000)
    feed = EventFeed(segments, 0.05, lambda should_stop: None)
    segments.put(segment(100, size=2_000))
    assert not segments.has_room
    wait_until(lambda: segments.full_seconds > 0.05, 5, "the stall time-out")
    with pytest.raises(TransientError, match=r"has not taken the changes of 0\.05 s"):
        feed.check()
    assert segments.next(0) is not None
    assert segments.has_room
    feed.check()


def test_an_error_of_the_thread_is_the_runs() -> None:
    def fail(should_stop: object) -> None:
        raise TransientError("lost")

    feed = EventFeed(SharedSegments(1), 1.0, fail)
    feed.start()
    feed.close()
    with pytest.raises(TransientError, match="lost"):
        feed.check()


def test_silence_is_known_once_everything_was_taken() -> None:
    segments = SharedSegments(1_000)
    segments.start_after(Lsn(0))
    segments.note_silence(500)
    assert segments.wal_end == 500
    segments.put(segment(600, is_open=True))
    assert segments.wal_end == 0
    assert segments.next(0) is not None
    assert segments.is_open
    assert segments.next(0.01) is None


def test_what_is_acknowledged_is_reported_once() -> None:
    told: list[BatchReport] = []
    acknowledged = Acknowledged(told.append, lambda prefix: prefix == "wanted")
    acknowledged.write(segment(100))
    acknowledged.write(segment(200, 300, is_open=True))
    acknowledged.write(segment(400))
    acknowledged.reach(107, 500)
    assert told == []
    acknowledged.reach(208, 500)
    acknowledged.reach(208, 600)
    acknowledged.reach(500, 450)
    assert [(one.number, one.events, int(one.commit_lsn), one.lag_bytes) for one in told] == [
        (1, {TABLE.id: 3}, 208, 292),
        (2, {TABLE.id: 1}, 408, 0),
    ]
    assert told[0].behind_seconds and told[1].behind_seconds
    # Messages outside of transactions may be all that comes.
    silent = replace(segment(), runs=[])
    acknowledged.write(replace(silent, messages=[message(500, "other"), message(510, "wanted")]))
    acknowledged.reach(511, 600)
    assert (told[2].events, told[2].own_rows, told[2].commit_lsn) == ({}, {StreamTable.MESSAGES: 1}, 511)
