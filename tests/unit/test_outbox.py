"""Messages are delivered in order by a thread of their own, whatever the service does."""

import logging
import threading

from cdc_core.outbox import DeliveryError, Outbox
from tests.support.waits import patient, wait_until


def test_messages_are_delivered_in_order_before_the_end():
    got = []
    box = Outbox("box", got.append)
    for number in range(100):
        box.put(number)
    box.close(patient(5))
    box.put(100)
    assert got == list(range(100))


def test_nothing_waits_and_what_is_too_much_is_dropped(caplog):
    entered, release, got = threading.Event(), threading.Event(), []

    def slow(message):
        entered.set()
        release.wait(patient(20))
        got.append(message)

    box = Outbox("box", slow, most=2)
    box.put(0)
    assert entered.wait(patient(5))
    for number in range(1, 100):
        box.put(number)
    assert [record.getMessage() for record in caplog.records] == [
        "box: messages are dropped: messages wait for an answer already. The run continues."
    ]
    release.set()
    box.close(patient(5))
    assert got == [0, 1, 2]


def test_a_message_is_tried_again_and_then_dropped(caplog):
    caplog.set_level(logging.INFO)
    tried = []

    def fail(message):
        tried.append(message)
        if message in ("lost", "again") and tried.count(message) < (99 if message == "lost" else 2):
            raise DeliveryError("the service answered 503")

    box = Outbox("box", fail, retry_seconds=(0.001, 0.001))
    for message in ("lost", "again"):
        box.put(message)
    wait_until(lambda: tried.count("again") == 2, 5, "the second attempt")
    box.close(patient(5))
    assert tried == ["lost", "lost", "lost", "again", "again"]
    assert [record.getMessage() for record in caplog.records] == [
        "box: messages are dropped: the service answered 503. The run continues.",
        "box: messages are delivered again; 1 were dropped.",
    ]


def test_a_defect_ends_neither_the_thread_nor_shows_what_it_says(caplog):
    got = []

    def break_(message):
        if message == 1:
            raise KeyError("a value")
        got.append(message)

    box = Outbox("box", break_)
    box.put(1)
    box.put(2)
    box.close(patient(5))
    assert got == [2]
    assert "KeyError" in caplog.text and "a value" not in caplog.text


def test_the_end_does_not_wait_for_a_service_that_hangs(caplog):
    release = threading.Event()
    box = Outbox("box", lambda message: release.wait(patient(20)))
    for number in range(5):
        box.put(number)
    box.close(0.05)
    release.set()
    assert "were not delivered before the end" in caplog.text
