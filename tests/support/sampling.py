"""A part of what a long matrix holds, by chance, so that the whole suite stays short; all of it where asked."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
ALL = "WAL2LAKE_TEST_ALL"


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
