"""What is checked before a merge, and what a failure does."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cdc_core.option import number_in, option

_RULE = re.compile(r"\s*([^\s:.]+\.[^\s:]+)\s*:\s*(\S.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class UserRule:
    """A row passes where ``predicate`` (DuckDB SQL over ``after.*``) is true or null. ``table`` is schema.table."""

    table: str
    predicate: str


def parse_rule(text: str) -> UserRule:
    """``schema.table: predicate``."""
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError("schema.table: a SQL predicate over after.*")
    return UserRule(match[1], match[2].strip())


@dataclass(frozen=True, slots=True)
class QualityOptions:
    """What steers the checks. ``quality_rules`` holds one (name, rule) a property."""

    quality_enabled: bool = option(
        "wal2lake.quality.enabled", True, "Whether changes are checked before they are merged."
    )
    quality_failure_limit: float = option(
        "wal2lake.quality.failure.limit",
        1.0,
        "Part of a batch (0 to 1) that may fail before the table stops; 1 for no limit.",
        parse=number_in(0.0, 1.0),
    )
    quality_rules: tuple[tuple[str, UserRule], ...] = option(
        "wal2lake.quality.rule.NAME",
        (),
        "A rule of one's own: schema.table: predicate in DuckDB SQL over after.*; rows that fail it are quarantined.",
        parse=parse_rule,
        pattern=r"wal2lake\.quality\.rule\.([A-Za-z0-9_.-]+)",
    )
