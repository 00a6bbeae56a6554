"""How much of what could be tried is tried: a part of a long matrix by chance, and a number of examples."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
ALL = "WAL2LAKE_TEST_ALL"
EXAMPLES = "WAL2LAKE_TEST_EXAMPLES"


def examples(count: int) -> int:
    """``count`` examples of a property or a model, times WAL2LAKE_TEST_EXAMPLES (1 by default), at least two.

    ``make test-quick`` tries a quarter of them.
    """
    return max(2, round(count * float(os.environ.get(EXAMPLES, "1"))))


def sample(items: Sequence[T], size: int) -> list[T]:
    """``size`` of ``items`` in their order, printed with the seed; all of them where WAL2LAKE_TEST_ALL is set.

    WAL2LAKE_SEED repeats a choice.
    """
    if os.environ.get(ALL) or size >= len(items):
        return list(items)
    seed = int(os.environ.get("WAL2LAKE_SEED", random.SystemRandom().randint(1, 10**6)))
    chosen = sorted(random.Random(seed).sample(range(len(items)), size))
    found = [items[place] for place in chosen]
    print(f"seed {seed}: {found}")
    return found
