"""A number that differs by table: a property for all tables, and one with another number in its name for some of them.

wal2lake.freshness.seconds=2
wal2lake.freshness.seconds.300=archive\\..*
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cdc_core.option import parse_patterns
from cdc_core.schema import TableId
from cdc_core.selection.patterns import compile_all, compile_pattern, matches_any


@dataclass(frozen=True, slots=True)
class NumberByTable:
    """The number of each table: that of the first entry whose patterns match its name, else ``default``; picklable."""

    default: float
    entries: tuple[tuple[float, tuple[str, ...]], ...] = ()

    @classmethod
    def of(cls, default: float, named: Iterable[tuple[str, tuple[str, ...]]]) -> NumberByTable:
        """Create it from the entries of a property whose name has the number."""
        return cls(default, tuple((float(number), patterns) for number, patterns in named))

    @staticmethod
    def parse_tables(text: str) -> tuple[str, ...]:
        """Parse comma-separated regular expressions that match ``schema.table``. Raises ValueError for invalid ones."""
        patterns = parse_patterns(text)
        for pattern in patterns:
            compile_pattern(pattern)
        return patterns

    def for_table(self, table: TableId) -> float:
        """Return the table's number."""
        matching = (number for number, patterns in self.entries if matches_table(patterns, table))
        return next(matching, self.default)

    @property
    def least(self) -> float:
        """The least of all numbers."""
        return min([self.default, *(number for number, _ in self.entries)])


def matches_table(patterns: Iterable[str], table: TableId) -> bool:
    """Whether one of the regular expressions matches the table's entire name, ``schema.table``."""
    return matches_any(compile_all(patterns), str(table))


NumberByTable.parse_tables.kind = "list of regular expressions"  # type: ignore[attr-defined]
