"""Slices of a task wait for a store at the same time, and compute one at a time."""

from __future__ import annotations

import threading

import pytest

from cdc_core.lake.delta.side_by_side import giving_way, side_by_side
from tests.support.waits import patient


def test_all_wait_at_the_same_time_and_one_computes() -> None:
    meeting = threading.Barrier(5)
    computing = list[int]()

    def work(item: int) -> int:
        for _ in range(20):
            computing.append(item)
            assert computing == [item], "two slices compute at once"
            computing.pop()
            with giving_way():
                meeting.wait(patient(10))
        return 2 * item

    assert side_by_side(work, range(5)) == [0, 2, 4, 6, 8]


def test_an_error_is_raised_when_all_that_began_have_ended() -> None:
    ended = list[int]()

    def work(item: int) -> None:
        with giving_way():
            pass
        if item == 1:
            raise ValueError("the second")
        ended.append(item)

    with pytest.raises(ValueError, match="the second"):
        side_by_side(work, range(4))
    before = list(ended)
    assert 1 not in before
    side_by_side(work, [5, 6])
    assert sorted(ended) == sorted([*before, 5, 6])


def test_who_is_alone_gives_way_to_nobody() -> None:
    with giving_way(), giving_way():
        assert side_by_side(lambda item: item, [7]) == [7]


def test_items_that_may_be_large_follow_each_other_beside_the_others() -> None:
    large, others = threading.Lock(), threading.Barrier(4)

    def work(item: int) -> int:
        if item < 3:
            assert large.acquire(blocking=False), "two large ones at once"
        with giving_way():
            if item in (0, 4, 5, 6):
                others.wait(patient(10))  # a large one and the others wait at the same time
        if item < 3:
            large.release()
        return 2 * item

    assert side_by_side(work, [4, 0, 1, 5, 2, 6], lambda item: item < 3) == [8, 0, 2, 10, 4, 12]
