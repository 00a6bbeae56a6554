"""A session's start: at once or when it is asked for, once, whoever asks."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cdc_core.spark.session_start import SessionStart
from tests.support.waits import patient


def test_nothing_starts_before_it_is_asked_for():
    started = []
    start = SessionStart(lambda: started.append(1))
    assert not started
    start()
    assert started == [1]


def test_all_who_ask_get_the_one_that_was_started_once():
    started = []

    def session():
        started.append(object())
        return started[0]

    start = SessionStart(session)
    start.begin()
    with ThreadPoolExecutor(8) as asking:
        found = set(asking.map(lambda _: start(), range(50)))
    assert found == set(started) and len(started) == 1


def test_beginning_does_not_wait():
    go, began = threading.Event(), threading.Event()

    def session():
        began.set()
        assert go.wait(patient(20))
        return "session"

    start = SessionStart(session)
    start.begin()
    assert began.wait(patient(20)) and not go.is_set()
    go.set()
    assert start() == "session"


def test_each_caller_gets_the_cause_of_a_failed_start():
    def session():
        raise OSError("no Java")

    start = SessionStart(session)
    for _ in range(2):
        with pytest.raises(OSError, match="no Java"):
            start()
