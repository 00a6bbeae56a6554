"""Debezium's regular expressions: Java's syntax, matched against the entire name, regardless of case (ASCII)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from cdc_core.selection.java_pattern import to_python


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str, *, ignore_case: bool = True) -> re.Pattern[str]:
    """Convert a Java regex to Python's. Raises ValueError with the reason if it is invalid or has no exact equal.

    ``ignore_case``: as Debezium's lists of tables and columns; the expressions of transforms distinguish case.
    """
    try:
        return re.compile(to_python(pattern, ignore_case=ignore_case))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(getattr(error, "msg", "") or "it is too large") from None


def compile_all(patterns: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """Compile all patterns, in order."""
    return tuple(compile_pattern(pattern) for pattern in patterns)


def matches_any(patterns: Iterable[re.Pattern[str]], name: str) -> bool:
    """Whether one of them matches the entire name."""
    return any(pattern.fullmatch(name) for pattern in patterns)
