"""Reports of judgements, as plain values for the command line and for Dagster."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import overload

from cdc_core.schema import TableId


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What one rule's expectation decided on one slice. ``severity`` is error (Great Expectations' critical) or warn.

    ``checked`` rows were judged, of which ``failed`` are unexpected. ``observed`` is what an expectation on the slice
    as a whole observed, empty if that would be a value of a row. ``kind`` and ``kwargs`` (JSON) are the expectation's.
    """

    name: str
    column: str
    severity: str
    checked: int
    failed: int
    description: str = ""
    success: bool = True
    observed: str = ""
    expected: str = ""
    kind: str = ""
    kwargs: str = field(default="", repr=False)
    over_slice: bool = False

    @property
    def said(self) -> str:
        """The observed and the expected value."""
        saw = f"{self.failed:,} of {self.checked:,} rows are unexpected"
        if self.over_slice:
            saw = f"observed {self.observed}" if self.observed else f"judged {self.checked:,} rows"
        return f"{saw}, expected {self.expected or self.description}"

    @property
    def is_of_user(self) -> bool:
        """Whether the user defined the rule."""
        return self.name.startswith("user:")

    def then(self, later: RuleResult) -> RuleResult:
        """Return the result over both slices: it failed if it failed on one; what the last failure observed."""
        shown = self if later.success and not self.success else later
        return replace(
            later,
            checked=self.checked + later.checked,
            failed=self.failed + later.failed,
            success=self.success and later.success,
            observed=shown.observed,
        )


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The judgement of one table's slice before it is merged; picklable.

    ``success``: no error rule's expectation failed.
    """

    table: TableId
    rows: int
    quarantined: int
    success: bool
    rules: tuple[RuleResult, ...] = ()


@overload
def both(report: CheckReport | None, other: CheckReport) -> CheckReport: ...
@overload
def both(report: CheckReport | None, other: CheckReport | None) -> CheckReport | None: ...


def both(report: CheckReport | None, other: CheckReport | None) -> CheckReport | None:
    """Return the report of two judgements of a table: sums, and the verdicts that failed in one of them.

    The rules of the two may differ, because the catalogue or a file changed between them.
    """
    if report is None or other is None:
        return report or other
    rules = {rule.name: rule for rule in report.rules}
    for later in other.rules:
        rules[later.name] = rules[later.name].then(later) if later.name in rules else later
    return CheckReport(
        report.table,
        report.rows + other.rows,
        report.quarantined + other.quarantined,
        report.success and other.success,
        tuple(rules.values()),
    )
