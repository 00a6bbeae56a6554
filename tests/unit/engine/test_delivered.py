"""A stream that Debezium has sent in part: wherever it stopped, exactly the rest is taken."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from cdc_core.decode.pgoutput.classify import sort_segment
from cdc_core.decode.pgoutput.stream_state import SortedSegment, StreamState
from cdc_core.decode.segment import Segment
from cdc_core.engine.reading.delivered import DeliveredFilter, DeliveredPlace, place_of
from cdc_core.errors import SourceError
from cdc_core.lsn import Lsn
from cdc_core.offsets.delivered import Delivered
from cdc_core.offsets.offset import DebeziumOffset
from tests.support import plain_pgoutput as plain
from tests.support.debezium_offsets import Received, offsets
from tests.unit.engine.streaming import CLIENTS, ORDERS, TIME_US, announce, insert, table_of

# One event of Debezium's: the message that it is of, or a table of a truncate.
Event = tuple[str, int, int | None]


@dataclass(frozen=True)
class Sent:
    """A message as the server sends it: LSN and payload, its transaction, and how many events are made of it."""

    lsn: int
    payload: bytes
    kind: str
    commit_lsn: int | None
    xid: int | None
    events: int = 1


class History:
    """Transactions that commit one after the other, while their changes lie mixed in the WAL."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._id = 0
        self.sent: list[Sent] = []
        lsn, open_ones = 1000, list[tuple[int, list[Sent]]]()
        for xid in range(700, 712):
            open_ones.append((xid, []))
            for mine, changes in open_ones:
                for _ in range(self._random.randrange(3)):
                    lsn += 32
                    changes.extend(self._change(lsn, mine))
            if self._random.random() < 0.2:
                lsn += 32
                self.sent.append(Sent(lsn, plain.message(lsn, "p", b"", False), "M", None, None))
            while open_ones and self._random.random() < 0.7:
                mine, changes = open_ones.pop(self._random.randrange(len(open_ones)))
                lsn = self._commit(lsn + 32, mine, changes)
        for mine, changes in open_ones:
            lsn = self._commit(lsn + 32, mine, changes)

    def _change(self, lsn: int, xid: int) -> list[Sent]:
        self._id += 1
        kind = self._random.choice("IIIIUT")
        if kind == "T":
            return [Sent(lsn, plain.truncate([ORDERS.oid, CLIENTS.oid]), "T", None, xid, 2)]
        if kind == "U":
            return [Sent(lsn, plain.update(ORDERS.oid, [str(self._id), "v"]), "U", None, xid)]
        found = self._random.choice((ORDERS, CLIENTS))
        return [Sent(lsn, insert(self._id, found), "I", None, xid)]

    def _commit(self, lsn: int, xid: int, changes: list[Sent]) -> int:
        """The next record may begin where this one ends, as in PostgreSQL 17."""
        end = lsn + self._random.choice((40, 32))
        first = changes[0].lsn if changes else lsn
        self.sent.append(Sent(first, plain.begin(lsn, TIME_US, xid), "B", lsn, xid, 0))
        self.sent += [replace(each, commit_lsn=lsn) for each in changes]
        self.sent.append(Sent(end, plain.commit(lsn, end, TIME_US), "C", lsn, xid, 0))
        return end - 32

    def events(self) -> list[Event]:
        return [event for sent in self.sent for event in events_of(sent)]


def events_of(sent: Sent) -> list[Event]:
    return [(sent.kind, sent.lsn, sent.commit_lsn)] * sent.events


def stored(sent: list[Sent], *, heartbeats: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """How many events were sent, and the offset, whenever one is stored: with an event, or (heartbeats) any message."""
    received = [
        (sent_one, Received(sent_one.kind, sent_one.lsn, sent_one.xid, is_last=number == max(sent_one.events, 1) - 1))
        for sent_one in sent
        for number in range(max(sent_one.events, 1))
    ]
    count = 0
    for (each, _), offset in zip(received, offsets([one for _, one in received], {"lsn_commit": 900}), strict=True):
        count += each.events > 0
        if each.events or heartbeats:
            yield count, offset


def segments(sent: list[Sent], seed: int, first: int = 0) -> Iterator[SortedSegment]:
    """The stream of a connection that starts at the transactions which commit at or after ``first``."""
    chosen = random.Random(seed)
    kept = [one for one in sent if (one.lsn if one.commit_lsn is None else one.commit_lsn) >= first]
    frames = [plain.frame(payload) for payload in announce(ORDERS, CLIENTS)]
    frames += [plain.frame(one.payload, one.lsn) for one in kept]
    state, at = StreamState(), 0
    while at < len(frames):
        size = chosen.randrange(1, 9)
        yield sort_segment(Segment.of(frames[at : at + size]), state, lambda found, lsn: table_of(found))
        at += size


def taken(delivered: Delivered, sent: list[Sent], seed: int, first: int) -> list[Event]:
    """What is left of the stream, in its order."""
    kept, found = DeliveredFilter(delivered), list[tuple[int, Event]]()
    for each in map(kept.rest, segments(sent, seed, first)):
        for run in each.runs:
            rows = run.raw.to_pylist()
            found += [(row["seq"], (chr(row["payload"][0]), row["lsn"], row["commit_lsn"])) for row in rows]
        for truncate in each.truncates:
            found += [(truncate.seq, ("T", truncate.lsn, truncate.commit_lsn))] * len(truncate.tables)
        found += [(one.seq, ("M", one.lsn, one.commit_lsn)) for one in each.messages]
    return [event for _, event in sorted(found, key=lambda one: one[0])]


@pytest.mark.parametrize("heartbeats", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_wherever_it_stopped_the_rest_is_taken(seed: int, heartbeats: bool) -> None:
    history = History(seed)
    events = history.events()
    every = list(stored(history.sent, heartbeats=heartbeats))
    for count, raw in random.Random(seed).sample(every, min(12, len(every))):
        offset = DebeziumOffset.of(raw)
        boundary = int(offset.boundary or 0)
        place = place_of(offset, segments(history.sent, seed + count, boundary))
        found = taken(place.delivered, history.sent, count, random.Random(count).choice([0, boundary]))
        # The end of the transaction before has the LSN of a truncate: which of its tables were sent is not known.
        is_unclear = place.rest_of_record > 0 and raw["lsn"] == raw["lsn_commit"]
        first = events.index(events[count - 1]) if is_unclear else count
        if raw["messageType"] == "TRUNCATE" and raw["lsn_proc"] != raw["lsn"]:
            first = events.index(events[count - 1])
        assert found == events[first:], (raw, place)


def test_the_same_with_the_text_that_is_stored() -> None:
    history = History(3)
    offset = DebeziumOffset.of(list(stored(history.sent, heartbeats=False))[-4][1])
    place = place_of(offset, segments(history.sent, 1))
    assert Delivered.from_json(place.delivered.to_json()) == place.delivered


COMMIT, AT = 500, 300


def copied(sent: int | None = None, **more: Any) -> tuple[DeliveredPlace, list[int]]:
    """Three rows of one WAL record, of which ``sent`` were sent, and one after them."""
    rows = [Sent(AT, insert(n), "I", COMMIT, 7) for n in (1, 2, 3)] + [Sent(AT + 32, insert(4), "I", COMMIT, 7)]
    stream = [
        Sent(AT, plain.begin(COMMIT, TIME_US, 7), "B", COMMIT, 7),
        *rows,
        Sent(540, plain.commit(COMMIT, 540, TIME_US), "C", COMMIT, 7),
    ]
    raw = {"lsn": AT, "lsn_proc": AT, "lsn_commit": 200, "txId": 7, "messageType": "INSERT", **more}
    offset = DebeziumOffset.of(raw if sent is None else {**raw, "lsn_events_processed": sent})
    place = place_of(offset, segments(stream, 1))
    kept = DeliveredFilter(place.delivered)
    left = [run.raw for part in map(kept.rest, segments(stream, 2)) for run in part.runs]
    return place, [row["tx_index"] for raw_rows in left for row in raw_rows.to_pylist()]


def test_rows_of_one_record() -> None:
    """Without a count they are taken again: that is known before anything is written."""
    place, left = copied()
    assert (left, place.rest_of_record, place.left) == ([0, 1, 2, 3], 3, 0)
    place, left = copied(sent=2)
    assert (left, place.rest_of_record, place.left) == ([2, 3], 1, 2)
    place, left = copied(sent=3)
    assert (left, place.rest_of_record) == ([3], 0)


def test_begin_was_sent_with_transaction_metadata() -> None:
    more = {"transaction_id": "7:300", "transaction_data_collection_order_shop.orders": 0}
    place, left = copied(messageType="BEGIN", **more)
    assert left == [0, 1, 2, 3]
    part = place.delivered.part
    assert part is not None
    assert part.counts == (("shop.orders", 0),)


def test_a_change_of_a_key_is_taken_again() -> None:
    """Debezium makes two events of it, with one offset."""
    changed = plain.update(ORDERS.oid, ["2", "v"], ["1", None], "K")
    stream = [
        Sent(AT, plain.begin(COMMIT, TIME_US, 7), "B", COMMIT, 7),
        Sent(AT, changed, "U", COMMIT, 7),
        Sent(540, plain.commit(COMMIT, 540, TIME_US), "C", COMMIT, 7),
    ]
    offset = DebeziumOffset.of({"lsn": AT, "lsn_proc": AT, "lsn_commit": 200, "txId": 7, "messageType": "UPDATE"})
    place = place_of(offset, segments(stream, 1))
    assert (place.left, place.rest_of_record) == (0, 1)


def test_an_offset_of_another_stream_is_refused() -> None:
    history = History(1)
    raw = {"lsn": 1100, "lsn_proc": 1100, "lsn_commit": 900, "txId": 4, "messageType": "INSERT"}
    with pytest.raises(SourceError, match="transaction 4"):
        place_of(DebeziumOffset.of(raw), segments(history.sent, 1))


def test_a_transaction_between_is_refused() -> None:
    """Its changes were not sent: the offset is not the connector's newest, or not of this slot."""
    history = History(5)
    with_rows = [one for one in history.sent if one.kind == "I"]
    last = with_rows[-1]
    raw = {"lsn": last.lsn, "lsn_proc": last.lsn, "lsn_commit": 900, "txId": last.xid, "messageType": "INSERT"}
    with pytest.raises(SourceError, match="next one after"):
        place_of(DebeziumOffset.of(raw), segments(history.sent, 1))


def test_an_older_offset_that_does_not_say_commit() -> None:
    """Earlier releases keep the last change's kind when its transaction ends."""
    raw = {"lsn": 2000, "lsn_proc": 2000, "lsn_commit": 2000, "txId": 7, "messageType": "INSERT"}
    assert place_of(DebeziumOffset.of(raw), []).delivered == Delivered(Lsn(2000))
