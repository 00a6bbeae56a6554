"""What is durable when: against a producer that acknowledges when the test says so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from cdc_core.errors import TransientError
from cdc_core.events.envelope.record import records
from cdc_core.events.kafka.client import BrokerError, Reported
from cdc_core.events.kafka.delivery import Delivery, DeliverySettings
from cdc_core.events.kafka.messages import Messages
from cdc_core.events.kafka.positions import PositionTopic
from cdc_core.events.kafka.publisher import Publisher
from tests.support.waits import patient, wait_until

TEXT = pa.large_string()
POSITIONS = PositionTopic("positions", b"key", most_bytes=100)


class Refusal:
    """A record as the callback of its delivery gets it."""

    def __init__(self, *parts: Any) -> None:
        self.topic, self.key, self.value = (lambda part=part: part for part in parts)

    def headers(self) -> None:
        """It has none."""


class FakeProducer:
    """``said`` is what was asked of it, in order. It acknowledges only while ``answers`` is set."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.answers = threading.Event()
        self.answers.set()
        self.waiting = 0
        # How many records of a batch the queue takes; all if None.
        self.room: int | None = None
        # Whether the queue takes no record at all.
        self.is_full = False
        # Callbacks of records whose batch the broker refuses.
        self.refused: list[Any] = []

    def __len__(self) -> int:
        return self.waiting

    def produce(self, topic: str, value: bytes, key: bytes, *_: Any, **more: Any) -> None:
        if self.is_full:
            raise BufferError
        if value and len(value) > 100:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        if value and value.startswith(b"refused"):
            self.refused.append((more["on_delivery"], Refusal(topic, key, value)))
            return
        self.said.append((topic, value))
        self.waiting += 1

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], on_delivery: Any) -> int:
        taken = 0
        for message in messages:
            if taken == self.room:
                message["_error"] = KafkaError(KafkaError._QUEUE_FULL)
                continue
            try:
                self.produce(topic, message["value"], message["key"], on_delivery=on_delivery)
                taken += 1
            except KafkaException as error:
                message["_error"] = error.args[0]
        return taken

    def flush(self, seconds: float) -> int:
        while self.refused:
            tell, message = self.refused.pop()
            tell(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), message)
        if self.answers.wait(seconds):
            self.waiting = 0
            self.said.append("flushed")
        return self.waiting

    def begin_transaction(self) -> None:
        self.said.append("begin")

    def commit_transaction(self, seconds: float) -> None:
        self.said.append("commit")

    def abort_transaction(self, seconds: float) -> None:
        self.said.append("abort")

    def poll(self, seconds: float) -> int:
        return 0

    def purge(self) -> None:
        self.said.append("purged")


class NoTopics:
    def make(self, topics: list[str]) -> None:
        """Every topic exists."""

    def limits(self, topics: list[str]) -> dict[str, int]:
        """The topic ``small`` takes less than its records need, ``unseen`` does not tell."""
        return {name: 50 if name == "small" else 10_000 for name in topics if name != "unseen"}


class Case:
    def __init__(self, **settings: Any) -> None:
        self.producer = FakeProducer()
        fakes: Any = (self.producer, NoTopics())
        made = DeliverySettings("broker:1", **{"stall_seconds": 30.0, **settings})
        delivery = Delivery(fakes[0], made, POSITIONS, fakes[1], Messages(), Reported("broker:1"))
        self.publisher = Publisher(delivery)

    def put(self, *values: str, topic: str = "t") -> None:
        rows = len(values)
        keys = pa.array(['{"id":1}'] * rows, TEXT)
        table = records(np.arange(rows), np.zeros(rows), topic, key=keys, value=pa.array(values, TEXT))
        self.publisher.put(table)


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    one = Case(**getattr(request, "param", {}))
    yield one
    one.publisher.close()


def test_a_position_is_written_after_the_records_are_acknowledged(case: Case) -> None:
    case.producer.answers.clear()
    case.put("a", "b")
    case.publisher.mark("one")
    wait_until(lambda: len(case.producer.said) == 2, 5, "the records")
    assert not case.publisher.settle(0.05)
    assert (case.publisher.durable, case.publisher.is_settled) == ("", False)
    wait_until(lambda: case.publisher.unacknowledged.records == 2, 5, "the records that librdkafka has")
    case.producer.answers.set()
    assert case.publisher.settle()
    found = case.publisher.unacknowledged
    assert (found.records, found.bytes, found.most_records) == (0, 0, 1_000_000)
    assert case.producer.said == [("t", b"a"), ("t", b"b"), "flushed", ("positions", b"one"), "flushed"]
    assert (case.publisher.durable, case.publisher.is_settled) == ("one", True)


def test_what_the_full_queue_does_not_take_is_sent_in_its_order(case: Case) -> None:
    case.producer.room = 1
    case.put("a", "b", "c")
    case.publisher.mark("one")
    assert case.publisher.settle()
    assert [value for topic, value in filter(lambda one: isinstance(one, tuple), case.producer.said)] == [
        *(b"a", b"b", b"c"),
        b"one",
    ]


def test_positions_that_wait_become_one(case: Case) -> None:
    case.producer.answers.clear()
    case.put("a")
    case.publisher.mark("one")
    for position in ("two", "three"):
        case.put(position)
        case.publisher.mark(position)
    case.producer.answers.set()
    assert case.publisher.settle()
    written = [value for topic, value in filter(lambda one: isinstance(one, tuple), case.producer.said) if topic != "t"]
    assert written[-1] == b"three"
    assert len(written) <= 2
    assert case.publisher.durable == "three"


def test_records_after_a_mark_are_not_settled(case: Case) -> None:
    case.publisher.mark("one")
    case.put("a")
    assert case.publisher.settle()
    assert (case.publisher.is_marked, case.publisher.is_settled) == (False, False)


@pytest.mark.parametrize("case", [{"is_transactional": True}], indirect=True)
def test_records_and_position_are_one_transaction(case: Case) -> None:
    case.put("a")
    case.put("b")
    case.publisher.mark("one")
    assert case.publisher.settle()
    assert case.producer.said == ["begin", ("t", b"a"), ("t", b"b"), ("positions", b"one"), "flushed", "commit"]
    case.put("c")
    wait_until(lambda: ("t", b"c") in case.producer.said, 5, "the record")
    case.publisher.close()
    # Readers need not wait for the time-out of what is left open.
    assert case.producer.said[-2:] == ["abort", "purged"]


@pytest.mark.parametrize("case", [{"is_transactional": True}], indirect=True)
def test_the_transaction_of_a_position_alone_is_not_left_open(case: Case) -> None:
    case.publisher.mark("one")
    assert case.publisher.settle()
    assert case.producer.said == ["begin", ("positions", b"one"), "flushed", "commit"]
    case.producer.answers.clear()
    case.publisher.mark("two")
    wait_until(lambda: case.producer.said[-1] == ("positions", b"two"), 5, "the position")
    case.publisher.close()
    assert case.producer.said[4:] == ["begin", ("positions", b"two"), "abort", "purged"]


@pytest.mark.parametrize("case", [{"is_transactional": True}], indirect=True)
def test_a_transaction_whose_commit_fails_is_aborted(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(seconds: float) -> None:
        raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    monkeypatch.setattr(case.producer, "commit_transaction", refuse)
    case.publisher.mark("one")
    with pytest.raises(BrokerError, match="does not permit committing a transaction"):
        case.publisher.settle()
    case.publisher.close()
    assert case.producer.said == ["begin", ("positions", b"one"), "flushed", "abort", "purged"]


@pytest.mark.parametrize("case", [{"is_transactional": True, "stall_seconds": 0.2}], indirect=True)
def test_waiting_for_room_for_a_position_is_bounded(case: Case) -> None:
    case.producer.is_full = True
    case.publisher.mark("one")
    with pytest.raises(TransientError, match="did not answer within"):
        case.publisher.settle(patient(10))


def test_a_record_that_is_too_large_ends_the_run_without_its_value(case: Case) -> None:
    case.put("a", "x" * 200)
    case.publisher.mark("one")
    with pytest.raises(BrokerError, match=r"topic t has 208 bytes \(its key: id\), more than .* of 100 bytes") as found:
        case.publisher.settle()
    assert "xxx" not in str(found.value)


@pytest.mark.parametrize("case", [{"leaves_out": True}], indirect=True)
def test_a_refused_batch_leaves_no_other_record_out(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    case.put("a", "refused", topic="small")
    case.publisher.mark("one")
    assert case.publisher.settle()
    assert "A record of topic small has 15 bytes (its key: id), more than the topic's max.message.bytes" in caplog.text
    case.put("refused", topic="t")
    case.publisher.mark("two")
    with pytest.raises(TransientError, match=r"batch of records of topic t is larger than .* of 10,000 bytes"):
        case.publisher.settle()
    assert case.producer.said.count(("positions", b"two")) == 0


@pytest.mark.parametrize("case", [{"leaves_out": True}], indirect=True)
def test_without_the_topics_limit_nothing_is_left_out(case: Case) -> None:
    case.put("refused", topic="unseen")
    case.publisher.mark("one")
    with pytest.raises(TransientError, match="batch of records of topic unseen"):
        case.publisher.settle()


@pytest.mark.parametrize("case", [{"leaves_out": True}], indirect=True)
def test_it_is_left_out_where_that_is_permitted(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    case.put("a", "x" * 200, "b")
    case.publisher.mark("one")
    assert case.publisher.settle()
    assert [one for one in case.producer.said if one[0] == "t"] == [("t", b"a"), ("t", b"b")]
    assert "left out: A record of topic t has 208 bytes" in caplog.text


@pytest.mark.parametrize("case", [{"stall_seconds": 0.2}], indirect=True)
def test_waiting_is_bounded(case: Case) -> None:
    case.producer.answers.clear()
    case.put("a")
    case.publisher.mark("one")
    with pytest.raises(TransientError, match="did not answer within"):
        case.publisher.settle()
    with pytest.raises(TransientError):
        case.put("b")
