"""Whether a stream continues what a lake holds: the rules, each case by itself."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from cdc_core.decode.pgoutput.stream_state import MARK_SCHEMA, SortedSegment
from cdc_core.engine.reading.continuity import Break, BrokenStreamError, CommitWatch, departure, judge, record_lost
from cdc_core.engine.stream.confirmations import Confirmations
from cdc_core.lake.stores.stream_log import LastCommit, StreamLog, StreamRecord, read_stream
from cdc_core.lsn import Lsn
from cdc_core.postgres.replication.slot import SlotInfo
from cdc_core.postgres.replication.stream_identity import StreamFacts, parse_history

RECORD = StreamRecord("77", 1, "shop", "slot_1", Lsn(1_000), database_oid=5)
SLOT = SlotInfo("slot_1", True, "pgoutput", "shop", confirmed_lsn=Lsn(1_000))
FACTS = StreamFacts("77", 1, (), Lsn(2_000), False, "shop", 5, SLOT)
PROMOTED = replace(FACTS, timeline=2, history=((1, Lsn(1_500)),))


def kind(record: StreamRecord = RECORD, facts: StreamFacts = FACTS, held: int = 900, slot: str = "slot_1") -> object:
    found = judge(record, facts, Lsn(held), slot)
    return None if found is None else found.kind


def at(lsn: int | None) -> StreamFacts:
    return replace(FACTS, slot=replace(SLOT, confirmed_lsn=None if lsn is None else Lsn(lsn)))


@pytest.mark.parametrize(
    ("facts", "held", "expected"),
    [
        (FACTS, 900, None),
        (at(400), 900, None),
        (at(1_001), 900, Break.SLOT_AHEAD),
        (at(1_001), 1_700, Break.SLOT_AHEAD),
        (replace(FACTS, slot=SlotInfo("slot_1")), 900, Break.SLOT_MISSING),
        (replace(FACTS, system_id="78"), 0, Break.SERVER),
        (replace(FACTS, database="store"), 900, None),
        (replace(FACTS, database_oid=6), 900, Break.DATABASE),
        (replace(FACTS, flushed=Lsn(999)), 900, Break.HISTORY),
        (replace(FACTS, flushed=Lsn(1_000)), 1_000, None),
        (replace(FACTS, flushed=Lsn(1_000)), 1_001, Break.HISTORY),
        (replace(FACTS, flushed=Lsn(1_000)), 1_200, Break.HISTORY),
        (PROMOTED, 1_500, None),
        (PROMOTED, 1_501, Break.HISTORY),
        (replace(PROMOTED, history=((1, Lsn(999)),)), 900, Break.HISTORY),
        (replace(PROMOTED, history=((1, Lsn(1_000)),)), 1_000, None),
        (replace(PROMOTED, history=((1, Lsn(1_000)),)), 1_001, Break.HISTORY),
        (replace(PROMOTED, history=None), 900, Break.HISTORY),
        (replace(PROMOTED, timeline=4, history=((1, Lsn(1_500)), (2, Lsn(1_600)), (3, Lsn(1_700)))), 900, None),
    ],
)
def test_each_case(facts: StreamFacts, held: int, expected: Break | None) -> None:
    assert kind(facts=facts, held=held) == expected


def test_the_former_primary_lacks_what_came_after_the_promotion() -> None:
    followed = replace(RECORD, timeline=2, history=((1, Lsn(950)),))
    assert kind(followed, FACTS) is Break.HISTORY
    assert kind(replace(followed, history=((1, Lsn(1_000)),)), FACTS) is None


def test_two_standbys_that_both_became_timeline_2() -> None:
    followed = replace(RECORD, timeline=2, history=((1, Lsn(950)),))
    other = replace(PROMOTED, history=((1, Lsn(940)),))
    assert departure(followed, other) == 940
    assert kind(followed, other) is Break.HISTORY


def test_a_slot_that_was_not_seen_yet_may_be_anywhere() -> None:
    begun = replace(RECORD, confirmed=Lsn(0))
    assert kind(begun, at(1_900), 0) is None
    assert kind(begun, replace(FACTS, slot=SlotInfo("slot_1")), 0) is None


def test_another_slot_name_and_a_stream_known_to_be_broken() -> None:
    assert kind(slot="slot_2") is Break.SLOT_NAME
    assert kind(replace(RECORD, broken="why")) is Break.BROKEN


def test_a_message_names_both_sides_and_a_remedy() -> None:
    found = judge(RECORD, at(1_001), Lsn(900), "slot_1")
    assert found is not None
    assert "0/3E9" in found.message
    assert "0/3E8" in found.message
    assert "wal2lake snapshot" in found.remedy


def test_a_history_file() -> None:
    text = "1\t0/3000148\tno recovery target specified\n\n2\t0/4000000\tbefore 2000-01-01 # x\n# comment\n"
    assert parse_history(text) == ((1, Lsn.parse("0/3000148")), (2, Lsn.parse("0/4000000")))


LAST = LastCommit(Lsn(500), 7, 1_000)


def segment(*transactions: tuple[int, int, int]) -> SortedSegment:
    marks = [
        {"seq": n, "kind": ord(mark), "lsn": lsn, "xid": xid, "commit_lsn": lsn, "end_lsn": None, "commit_ts_us": ts}
        for n, (lsn, xid, ts) in enumerate(transactions)
        for mark in "BC"
    ]
    found = pa.RecordBatch.from_pylist(marks, schema=MARK_SCHEMA)
    return SortedSegment([], [], [], found, None, None, False, 0, 0, 0)


def test_the_last_commit_is_sent_again() -> None:
    watch = CommitWatch(LAST, "slot_1")
    watch.note(segment((300, 5, 900), (400, 6, 950)))
    watch.note_silence(500)
    watch.note(segment((500, 7, 1_000), (600, 8, 1_100)))
    watch.note(segment((500, 9, 1_000)))
    watch.note_silence(9_000)


@pytest.mark.parametrize("other", [(500, 8, 1_000), (500, 7, 1_001), (501, 7, 1_000), (900, 7, 1_000)])
def test_another_commit_in_its_place(other: tuple[int, int, int]) -> None:
    watch = CommitWatch(LAST, "slot_1")
    watch.note(segment((300, 5, 900)))
    with pytest.raises(BrokenStreamError, match="did not send the transaction 7"):
        watch.note(segment((499, 6, 950), other))


def test_a_server_that_passes_it_in_silence() -> None:
    watch = CommitWatch(LAST, "slot_1")
    with pytest.raises(BrokenStreamError):
        watch.note_silence(501)


def test_nothing_is_expected_of_a_slot_that_starts_after_it() -> None:
    watch = CommitWatch(None, "slot_1")
    watch.note(segment((900, 1, 1)))
    watch.note_silence(9_000)


def test_a_position_is_recorded_before_it_is_sent(tmp_path, monkeypatch) -> None:
    path, sent, now = str(tmp_path / "__stream"), [], [100.0]
    monkeypatch.setattr("cdc_core.engine.stream.confirmations.time.monotonic", lambda: now[0])
    log = StreamLog(path, 60)
    log.begin(RECORD, is_first=True)

    def send(lsn: int) -> None:
        recorded = read_stream(path)
        assert recorded is not None
        assert recorded.confirmed >= lsn
        sent.append(lsn)

    confirmations = Confirmations(send, log)
    confirmations.confirm(10)
    assert sent == [10]
    # At most once a second with changes ...
    confirmations.confirm(20, LAST)
    confirmations.confirm(30)
    assert sent == [10]
    now[0] += 1
    confirmations.tick()
    assert sent == [10, 30]
    # ... and every ten seconds when there was none for a minute; at the end at once.
    now[0] += 59
    confirmations.confirm(35)
    assert sent == [10, 30, 35]
    now[0] += 9
    confirmations.confirm(40)
    assert sent == [10, 30, 35]
    now[0] += 1
    confirmations.tick()
    confirmations.confirm(50)
    assert sent == [10, 30, 35, 40]
    confirmations.flush()
    confirmations.flush()
    assert sent == [10, 30, 35, 40, 50]
    found = read_stream(path)
    assert found is not None
    assert (found.confirmed, found.last) == (50, LAST)


def test_without_a_lake_a_position_is_sent_at_once() -> None:
    sent: list[int] = []
    confirmations = Confirmations(sent.append)
    confirmations.confirm(1)
    confirmations.confirm(2, LAST)
    assert sent == [1, 2]


@pytest.mark.parametrize(("recorded", "held", "said"), [(0, 0, None), (2, 1, None), (2, 2, None), (0, 1, "missing"),
                                                        (1, 2, "knows 1 of them")])  # fmt: skip
def test_a_record_is_not_older_than_the_tables(recorded: int, held: int, said: str | None) -> None:
    found = record_lost(recorded, held, "lake/t/__stream")
    assert (found is None) is (said is None)
    assert found is None or (said in found.message and "wal2lake snapshot" in found.remedy)
