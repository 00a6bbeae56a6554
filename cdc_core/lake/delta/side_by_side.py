"""Slices of one task whose requests to a store go side by side, while one of them at a time computes.

A round of many tables would otherwise wait for one request after another, with idle processors. What the slices share
in their process (tables that are open, engines of rules) is written for one thread: a slice gives way only while it
waits for the store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# Each holds its rows while it waits.
_MOST = 8
_turn = threading.Lock()
_mine = threading.local()


def side_by_side(
    work: Callable[[Item], Result], items: Sequence[Item], is_large: Callable[[Item], bool] = lambda item: False
) -> list[Result]:
    """Return ``work(item)`` of each item in their order. Raises the first error, when all that began have ended.

    Items that may be large are processed one after the other, beside the others.
    """
    if len(items) < 2:
        return [work(item) for item in items]
    large = [number for number, item in enumerate(items) if is_large(item)]
    rows = [large] if large else []
    rows += [[number] for number in range(len(items)) if number not in large]
    with ThreadPoolExecutor(min(_MOST, len(rows)), "wal2lake-slice") as pool:
        done = pool.map(lambda row: [(number, _in_turn(work, items[number])) for number in row], rows)
        return [result for _, result in sorted(chain.from_iterable(done), key=lambda pair: pair[0])]


@contextmanager
def giving_way() -> Iterator[None]:
    """Let another slice of the task compute during the block, which waits for the store and changes nothing shared."""
    if not getattr(_mine, "turn", False):
        yield
        return
    _mine.turn = False
    _turn.release()
    try:
        yield
    finally:
        _turn.acquire()
        _mine.turn = True


def _in_turn(work: Callable[[Item], Result], item: Item) -> Result:
    with _turn:
        _mine.turn = True
        try:
            return work(item)
        finally:
            _mine.turn = False
