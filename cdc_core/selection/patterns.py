"""Debezium's regular expressions: Java's syntax, matched against the entire name, regardless of case (ASCII)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TypeAlias

import regex

from cdc_core.selection.java_pattern import to_regex

Pattern: TypeAlias = regex.Pattern[str]


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str, *, ignore_case: bool = True) -> Pattern:
    """Compile a Java regular expression. Raises ValueError with the reason if it is invalid or has no exact equal.

    ``ignore_case``: as Debezium's lists of tables and columns; the expressions of transforms distinguish case.
    """
    try:
        return regex.compile(to_regex(pattern, ignore_case=ignore_case), regex.VERSION1)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(getattr(error, "msg", "") or "it is too large") from None


def compile_all(patterns: Iterable[str]) -> tuple[Pattern, ...]:
    """Compile all patterns, in order."""
    return tuple(compile_pattern(pattern) for pattern in patterns)


def matches_any(patterns: Iterable[Pattern], name: str) -> bool:
    """Whether one of them matches the entire name."""
    return any(pattern.fullmatch(name) for pattern in patterns)
