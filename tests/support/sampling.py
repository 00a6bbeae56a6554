"""How much of what could be tried is tried: a part of a long matrix by chance, and a number of examples."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
ALL = "WAL2LAKE_TEST_ALL"
SEED = "WAL2LAKE_SEED"
EXAMPLES = "WAL2LAKE_TEST_EXAMPLES"


def examples(count: int) -> int:
    """``count`` examples of a property or a model, times WAL2LAKE_TEST_EXAMPLES (1 by default), at least two.

    ``make test-quick`` tries a quarter of them.
    """
    return max(2, round(count * float(os.environ.get(EXAMPLES, "1"))))


def explores() -> bool:
    """Whether tests try what no run has tried before, as ``make test-all`` does.

    Otherwise examples by chance are the same in each run: what fails was changed, and is found again.
    """
    return bool(os.environ.get(ALL))


def seed(usual: int, variable: str = SEED) -> int:
    """The seed of a test: the variable's, or ``usual``, or by chance where tests explore. A test prints it."""
    given = os.environ.get(variable)
    return int(given) if given else random.SystemRandom().randrange(10**6) if explores() else usual


def sample(items: Sequence[T], size: int) -> list[T]:
    """``size`` of ``items`` in their order, printed with the seed; all of them where WAL2LAKE_TEST_ALL is set.

    WAL2LAKE_SEED repeats a choice.
    """
    if explores() or size >= len(items):
        return list(items)
    drawn = int(os.environ.get(SEED) or random.SystemRandom().randrange(10**6))
    chosen = sorted(random.Random(drawn).sample(range(len(items)), size))
    found = [items[place] for place in chosen]
    print(f"seed {drawn}: {found}")
    return found
