"""Results of a check of one table's batch, as plain values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from cdc_core.quality.rules import Rule, Severity
from cdc_core.schema.table import TableId


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts over a batch's change rows.

    ``failed`` counts failing rows by rule name. ``quarantined`` counts rows that fail at least one error rule.
    ``duplicates`` is the number of rows with the same position as an earlier row of the batch; None if it was not
    counted. ``max_commit_lsn`` is None for an empty batch.
    """

    rows: int
    failed: dict[str, int]
    quarantined: int
    duplicates: int | None = None
    max_commit_lsn: int | None = None

    def plus(self, later: Summary) -> Summary:
        """Return the counts of both, as for one batch with the rows of both."""
        names = self.failed.keys() | later.failed.keys()
        highest = [lsn for lsn in (self.max_commit_lsn, later.max_commit_lsn) if lsn is not None]
        counted = [count for count in (self.duplicates, later.duplicates) if count is not None]
        return Summary(
            self.rows + later.rows,
            {name: self.failed.get(name, 0) + later.failed.get(name, 0) for name in names},
            self.quarantined + later.quarantined,
            sum(counted) if counted else None,
            max(highest, default=None),
        )


class Stated(Protocol):
    """The facts about a rule that a suite states: of a rule, its outcome, or a report's line."""

    @property
    def name(self) -> str:
        """The rule's name, unique in its table."""

    @property
    def severity(self) -> str:
        """``error`` or ``warn``."""

    @property
    def description(self) -> str:
        """A sentence for users."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A suite's statement about one rule: that no row fails it."""

    name: str
    severity: str
    description: str


def statements(rules: Iterable[Stated]) -> tuple[Statement, ...]:
    """Return a suite's statements about these rules, in their order."""
    return tuple(Statement(rule.name, str(rule.severity), rule.description) for rule in rules)


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """One rule on one batch: the numbers of rows checked and of failing rows."""

    name: str
    column: str
    severity: str
    description: str
    checked: int
    failed: int


@dataclass(frozen=True, slots=True)
class TableReport:
    """The checks of one table's batch. ``validation_json`` is Great Expectations' result, empty if it did not run."""

    table: TableId
    rows: int
    quarantined: int
    suite_success: bool
    rules: tuple[RuleOutcome, ...] = ()
    duplicates: int | None = None
    validation_json: str = field(default="", repr=False)

    @property
    def success(self) -> bool:
        """Whether no row was quarantined and the suite passed."""
        return self.suite_success and self.quarantined == 0


def outcomes(rules: tuple[Rule, ...], summary: Summary) -> tuple[RuleOutcome, ...]:
    """Return each rule with its count from the batch's summary."""
    return tuple(
        RuleOutcome(
            rule.name,
            rule.column,
            str(rule.severity),
            rule.description,
            summary.rows,
            summary.failed.get(rule.name, 0),
        )
        for rule in rules
    )


def error_rules(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Return the rules whose failing rows are quarantined."""
    return tuple(rule for rule in rules if rule.severity is Severity.ERROR)
