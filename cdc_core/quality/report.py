"""Results of the judgement of one table's slice, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc_core.quality.rules import Rule, Severity


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts over a slice's change rows.

    ``failed`` counts, by rule name, the unexpected rows of expectations that failed. ``quarantined`` counts rows that
    are unexpected by at least one of these of severity error. ``duplicates`` is the number of rows with the same
    position as an earlier row of the slice. ``max_commit_lsn`` is None for an empty slice.
    """

    rows: int
    failed: dict[str, int]
    quarantined: int
    duplicates: int
    max_commit_lsn: int | None = None


@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics of one rule on a slice: numbers of rows that it judges, of ``ignored`` and of ``unexpected`` ones.

    ``values`` are the aggregates of an expectation on the slice as a whole, by the library's names.
    """

    rows: int
    ignored: int = 0
    unexpected: int = 0
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """What one rule's expectation decided on a slice, from ``metrics``.

    ``observed`` is the value that an expectation on the slice as a whole judged, None if it judged rows.
    """

    rule: Rule
    success: bool
    metrics: Metrics
    observed: Any = None
    over_slice: bool = False

    @property
    def stops(self) -> bool:
        """Whether no row of the slice may be merged."""
        return not self.success and self.over_slice and self.rule.severity is Severity.ERROR
