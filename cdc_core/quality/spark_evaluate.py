"""The check of one table's batch, whole: count, validate, and split only where something failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_core.errors import TableError
from cdc_core.quality.report import Summary, TableReport, error_rules, outcomes
from cdc_core.quality.rules import Origin, Rule
from cdc_core.schema.table import TableId

if TYPE_CHECKING:
    from cdc_core.quality.spark import DataFrame


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of ``check``.

    ``good`` has the shape of the changes that came in. ``bad`` holds quarantine rows (position columns, ``reasons``
    array<string>, ``row`` JSON text), or is None when no row failed. ``rules`` and ``summary`` are what data docs need.
    """

    good: DataFrame
    bad: DataFrame | None
    report: TableReport
    rules: tuple[Rule, ...]
    summary: Summary


def check(
    changes: DataFrame,
    table: TableId,
    rules: tuple[Rule, ...],
    *,
    refresh: Callable[[], tuple[Rule, ...]] | None = None,
    failure_limit: float = 1.0,
    with_suite: bool = True,
    count_duplicates: bool = True,
) -> Checked:
    """Evaluate ``rules`` over a batch of change rows before it is merged.

    Rows that fail an error rule come back as ``bad``; the batch is read once, and a second time lazily only where
    something failed. ``refresh`` gives the rules by the catalogue as it is now: it is asked once when a catalogue rule
    failed, for the source may have gained an enum label or lost a NOT NULL that the stream does not announce.
    Raises TableError when more than ``failure_limit`` (0 to 1) of the rows fail, when a position occurs twice, which
    nothing downstream could repair, and for a user's rule that Spark cannot evaluate.
    """
    from cdc_core.quality import spark

    name = str(table)
    rules = spark.applicable(changes, rules)
    summary = spark.summarise(name, changes, rules, count_duplicates=count_duplicates)
    if refresh is not None and _catalogue_failed(rules, summary):
        renewed = spark.applicable(changes, refresh())
        if renewed != rules:
            rules = renewed
            summary = spark.summarise(name, changes, rules, count_duplicates=count_duplicates)
    if summary.duplicates:
        raise TableError(
            f"The changelog of {name} holds {summary.duplicates} row(s) whose position another row has too.",
            "Nothing of this round was merged; the changelog was written to by something else than wal2lake.",
            name,
        )
    if summary.quarantined > failure_limit * summary.rows:
        raise TableError(
            f"{summary.quarantined} of {summary.rows} changes of {name} fail a rule ({_worst(rules, summary)}), "
            f"more than wal2lake.quality.failure.limit ({failure_limit}) allows.",
            "Mend the source or the rule; the changes wait in the changelog.",
            name,
        )
    success, validation = True, ""
    if with_suite:
        from cdc_core.quality.great_expectations import validate

        verdict = validate(name, rules, summary)
        success, validation = verdict.success, verdict.json
    good, bad = (changes, None) if summary.quarantined == 0 else spark.split(changes, rules)
    report = TableReport(
        table, summary.rows, summary.quarantined, success, outcomes(rules, summary), summary.duplicates, validation
    )
    return Checked(good, bad, report, rules, summary)


def _catalogue_failed(rules: tuple[Rule, ...], summary: Summary) -> bool:
    return any(rule.origin is Origin.CATALOGUE and summary.failed.get(rule.name, 0) for rule in rules)


def _worst(rules: tuple[Rule, ...], summary: Summary) -> str:
    """The error rules that failed, worst first."""
    failed = [(summary.failed.get(rule.name, 0), rule.name) for rule in error_rules(rules)]
    return ", ".join(f"{name} {count}" for count, name in sorted(failed, reverse=True) if count)
