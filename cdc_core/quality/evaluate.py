"""The check of one table's slice, whole: count, decide, and split only where something failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import LimitExceededError, TableError
from cdc_core.quality.duck import Judged, judge, quarantine_rows
from cdc_core.quality.report import Summary, TableReport, error_rules, outcomes
from cdc_core.quality.rules import Origin, Rule
from cdc_core.schema.table import TableId


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of ``check``; picklable.

    ``good`` holds the slice's rows that may be merged, in its shape and order. ``bad`` holds quarantine rows (position
    columns, ``reasons`` list<string>, ``row`` and ``key`` JSON text), or is None when no row failed. ``refused`` is the
    mask of these in the slice and ``reasons`` what each fails, None like ``bad``: bool[N], list<string>[bad rows].
    ``rules`` and ``summary`` are what Great Expectations validates; ``report.suite_success`` is what it will say.
    """

    good: pa.Table
    bad: pa.Table | None
    report: TableReport
    rules: tuple[Rule, ...]
    summary: Summary
    refused: pa.BooleanArray | None = None
    reasons: pa.ListArray | None = None


def check(
    changes: pa.Table,
    table: TableId,
    rules: tuple[Rule, ...],
    *,
    refresh: Callable[[], tuple[Rule, ...]] | None = None,
    failure_limit: float = 1.0,
    key: tuple[str, ...] = (),
    over_batch: Callable[[tuple[Rule, ...]], Mapping[str, np.ndarray]] | None = None,
) -> Checked:
    """Evaluate ``rules`` over a slice of change rows before it is merged.

    Rows that fail an error rule come back as ``bad``. ``refresh`` gives the rules by the catalogue as it is now: it is
    asked once when a catalogue rule failed, for the source may have gained an enum label or lost a NOT NULL that the
    stream does not announce; such rules say since when they are known to be in force. ``key`` names the columns that
    quarantine rows show as their key. ``over_batch`` finds the rows that fail rules which no row alone can fail, by
    the rule's name, bool[N] each. Raises LimitExceededError when more than ``failure_limit`` (0 to 1) of the rows
    fail, TableError when a position occurs twice, which nothing downstream could repair, and for a user's rule that
    DuckDB cannot evaluate.
    """
    name = str(table)
    rules = applicable(changes.schema, rules)
    judged = judge(name, changes, rules, None if over_batch is None else over_batch(rules))
    if refresh is not None and _catalogue_failed(rules, judged.summary):
        renewed = applicable(changes.schema, refresh())
        if renewed != rules:
            rules = renewed
            judged = judge(name, changes, rules, None if over_batch is None else over_batch(rules))
    summary = judged.summary
    if summary.duplicates:
        raise TableError(
            f"The changelog of {name} has {summary.duplicates} row(s) with duplicate positions.",
            "This round was not merged; the changelog was written to by something other than wal2lake.",
            name,
        )
    if summary.quarantined > failure_limit * summary.rows:
        raise LimitExceededError(
            f"{summary.quarantined} of {summary.rows} changes of {name} fail a rule ({_worst(rules, summary)}), "
            f"more than wal2lake.quality.failure.limit ({failure_limit}) allows.",
            "Correct the rule, or raise the limit; the changes are kept in the changelog.",
            name,
        )
    good, bad = _split(changes, judged, key)
    report = TableReport(
        table, summary.rows, summary.quarantined, bad is None, outcomes(rules, summary), summary.duplicates
    )
    return Checked(good, bad, report, rules, summary, judged.bad, judged.reasons)


def applicable(schema: pa.Schema, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """The rules without those of columns that the slice does not carry, as when its rows are of an older version."""
    carried = {part.name for part in schema.field("after").type}
    return tuple(rule for rule in rules if rule.origin is not Origin.CATALOGUE or rule.column in ("", *carried))


def _split(changes: pa.Table, judged: Judged, key: tuple[str, ...]) -> tuple[pa.Table, pa.Table | None]:
    if judged.bad is None:
        return changes, None
    return changes.filter(pc.invert(judged.bad)), quarantine_rows(changes, judged, key)


def _catalogue_failed(rules: tuple[Rule, ...], summary: Summary) -> bool:
    return any(rule.origin is Origin.CATALOGUE and summary.failed.get(rule.name, 0) for rule in rules)


def _worst(rules: tuple[Rule, ...], summary: Summary) -> str:
    """The error rules that failed, worst first."""
    failed = [(summary.failed.get(rule.name, 0), rule.name) for rule in error_rules(rules)]
    return ", ".join(f"{name} {count}" for count, name in sorted(failed, reverse=True) if count)
