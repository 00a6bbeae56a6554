"""What a check of one table's batch found, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

from cdc_core.quality.rules import Rule, Severity
from cdc_core.schema.table import TableId


@dataclass(frozen=True, slots=True)
class Summary:
    """One aggregate over a batch's change rows.

    ``failed`` counts failing rows per rule name. ``quarantined`` counts rows that fail at least one error rule.
    ``duplicates`` is the number of rows whose position another row of the batch has too, beyond the first; None where
    it was not counted. ``max_commit_lsn`` is None for an empty batch.
    """

    rows: int
    failed: dict[str, int]
    quarantined: int
    duplicates: int | None = None
    max_commit_lsn: int | None = None


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """One rule over one batch: rows looked at, rows that failed."""

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
        """No row was quarantined and the suite passed."""
        return self.suite_success and self.quarantined == 0


def outcomes(rules: tuple[Rule, ...], summary: Summary) -> tuple[RuleOutcome, ...]:
    """Each rule with its count from the batch's summary."""
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
    """The rules that quarantine."""
    return tuple(rule for rule in rules if rule.severity is Severity.ERROR)
