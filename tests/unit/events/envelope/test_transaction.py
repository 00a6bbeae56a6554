"""Places in transactions, BEGIN and END."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.events.envelope.record import lines
from cdc_core.events.envelope.transaction import (
    CountedEvents,
    TransactionCounter,
    TransactionCounts,
    TransactionEvents,
    TransactionMark,
)
from tests.unit.events.envelope.tiny import context


def groups_of(events: list[tuple[str, int, int]]) -> list[CountedEvents]:
    """(collection, seq, commit LSN) → groups by collection."""
    names = sorted({name for name, _, _ in events})
    out = []
    for name in names:
        mine = [(seq, lsn) for one, seq, lsn in events if one == name]
        seq, lsn = (np.array(column) for column in zip(*mine, strict=True))
        out.append(CountedEvents(name, seq, np.zeros(len(mine), dtype=np.int64), lsn))
    return out


@given(st.lists(st.lists(st.sampled_from(["s.a", "s.b", "s.c"]), max_size=6), max_size=8), st.integers(0, 40))
def test_counts_are_those_of_a_plain_loop_wherever_the_stream_is_cut(plan: list[list[str]], cut: int) -> None:
    events, ends, seq = [], [], 0
    for number, collections in enumerate(plan, 1):
        for name in collections:
            events.append((name, seq, number * 100))
            seq += 1
        ends.append((seq, number * 100))
        seq += 1
    counter = TransactionCounter()
    found: dict[int, tuple[int, int]] = {}
    totals: dict[int, TransactionCounts] = {}
    for low, high in ((0, cut), (cut, seq)):
        part = groups_of([event for event in events if low <= event[1] < high])
        for group, orders in zip(part, counter.count(part), strict=True):
            for at, total, one in zip(group.seq, orders.total, orders.collection, strict=True):
                found[int(at)] = int(total), int(one)
        totals |= {lsn: counter.end(lsn) for at, lsn in ends if low <= at < high}
    for number, collections in enumerate(plan, 1):
        mine = [event for event in events if event[2] == number * 100]
        seen: Counter[str] = Counter()
        for place, (name, at, _) in enumerate(mine, 1):
            seen[name] += 1
            assert found[at] == (place, seen[name])
        assert totals[number * 100].total == len(collections)
        assert dict(totals[number * 100].collections) == dict(Counter(collections))


def test_collections_are_listed_as_a_java_hash_map_would() -> None:
    counter = TransactionCounter()
    names = ["inventory.t_pk2", "inventory.customers", "inventory.t_part_2021", "inventory.t_part_2020"]
    counter.count(groups_of([(name, at, 7) for at, name in enumerate(names)]))
    listed = [name for name, _ in counter.end(7).collections]
    assert listed.index("inventory.customers") < listed.index("inventory.t_pk2")
    assert listed.index("inventory.t_part_2020") < listed.index("inventory.t_part_2021")


def test_a_transaction_that_is_sent_again_is_counted_again() -> None:
    counter = TransactionCounter()
    counter.count(groups_of([("s.a", 1, 7), ("s.a", 2, 7)]))
    counter.begin(7)
    (orders,) = counter.count(groups_of([("s.a", 11, 7), ("s.a", 12, 7), ("s.a", 13, 7)]))
    assert orders.total.tolist() == [1, 2, 3]
    assert counter.end(7).total == 3


def test_begin_and_end_records() -> None:
    maker = TransactionEvents(context())
    counts = TransactionCounts(3, (("s.a", 2), ("s.b", 1)))
    begin = json.loads(lines(maker.make(TransactionMark(1, 9, 500, 690, 1_234_567, None)))[0])
    end = json.loads(lines(maker.make(TransactionMark(2, 9, 700, 690, 1_234_567, counts)))[0])
    assert begin["topic"] == end["topic"] == "fulfillment.transaction"
    assert (begin["headers"], begin["key"]["payload"], end["key"]["payload"]) == ([], {"id": "9:500"}, {"id": "9:700"})
    assert begin["value"]["payload"] == {
        "status": "BEGIN",
        "id": "9:500",
        "event_count": None,
        "data_collections": None,
        "ts_ms": 1234,
    }
    assert end["value"]["payload"] == {
        "status": "END",
        "id": "9:700",
        "event_count": 3,
        "data_collections": [
            {"data_collection": "s.a", "event_count": 2},
            {"data_collection": "s.b", "event_count": 1},
        ],
        "ts_ms": 1234,
    }


def test_a_transaction_without_events_still_ends() -> None:
    counts = TransactionCounter().end(5)
    mark = TransactionMark(1, 1, 5, 4, 0, counts)
    payload = json.loads(lines(TransactionEvents(context()).make(mark))[0])["value"]["payload"]
    assert (payload["event_count"], payload["data_collections"]) == (0, [])


@pytest.mark.parametrize("tables", [13, 30])
def test_many_collections_in_one_transaction(tables: int) -> None:
    counter = TransactionCounter()
    counter.count(groups_of([(f"s.t{at}", at, 7) for at in range(tables)]))
    assert sorted(counter.end(7).collections) == sorted((f"s.t{at}", 1) for at in range(tables))
